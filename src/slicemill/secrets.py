"""Secrets: reject, mask and resolve passwords in addresses and options.

Statements are stored and shown, so they must not contain passwords. A statement refers to an environment
variable instead:

    WITH (sink = 'postgres://ada:${SLICEMILL_SECRET_SHOP}@db/shop')

The reference is stored, and is resolved when the connection is opened. A statement can refer only to
variables whose names begin with `SLICEMILL_SECRET_`, so other variables of the server's process remain
private.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from urllib.parse import unquote

from slicemill.errors import SlicemillError

PREFIX = "SLICEMILL_SECRET_"
HINT = (
    f"write a reference such as ${{{PREFIX}NAME}} in its place, and set that environment variable for the "
    "process of slicemill"
)

_REFERENCE = re.compile(rf"\$\{{({PREFIX}\w+)\}}", re.ASCII)
_SECRET_NAME = re.compile(
    r"password|passwd|(?:^|[._-])pwd$|secret|token|credential|api_?key|access[._-]?key|account[._-]?key"
    r"|shared[._-]?key|private[._-]?key",
    re.IGNORECASE,
)
_PLACE_NAME = re.compile(
    r"(?:url|uri|endpoint|location|path|file|provider|class|type|algorithm)$", re.IGNORECASE
)
# Pattern of all texts that may contain a password, for a fast test.
_POSSIBLE = re.compile(rf"@|{_SECRET_NAME.pattern}|\bpwd\b|%[0-9a-f]{{2}}", re.IGNORECASE)

# Text before the password in an address. Addresses of Oracle's driver look like `scott/tiger@host`.
_USER = re.compile(r"://[^:@/]*:|jdbc:oracle:\w{1,9}:[^/@]{1,99}/", re.IGNORECASE)
_ADDRESS = re.compile(r"://|\?|\A\s*[a-z][\w+.-]*:", re.IGNORECASE)
_PARAMETER = re.compile(r"([?&;,\s\"'(]|^)([\w.%-]+)(\s*=\s*)(\"[^\"]*\"|'[^']*'|[^&;,\s\"')]*)")
_LITERAL = re.compile(r"'(?:[^']|'')*'|[‘’][^‘’]*’")
_OPTIONS = re.compile(rf"\bOPTIONS\b[^('‘]{{0,200}}\((?:[^()'‘’]|{_LITERAL.pattern})*\)?", re.IGNORECASE)
_OPTION = re.compile(rf"((?:[\w.\"`]+|{_LITERAL.pattern})\s*(?:=\s*)?)({_LITERAL.pattern})", re.DOTALL)
_WORD = re.compile(r"\S+")

Mask = Callable[[str], str]


def names_secret(name: str) -> bool:
    """Return True if an option with this name contains a password.

    >>> names_secret("kafka.ssl.key.password"), names_secret("path")
    (True, False)
    """
    return _SECRET_NAME.search(name) is not None and not _PLACE_NAME.search(name)


def contains_secret(value: str, name: str = "") -> bool:
    """Return True if an option's value, or an address, contains a password.

    >>> contains_secret("postgres://ada:pw@db/shop"), contains_secret("x", "password")
    (True, True)
    >>> contains_secret("postgres://ada:${SLICEMILL_SECRET_SHOP}@db/shop")
    False
    """
    return _mask_value(value, name, lambda _: "") != value


def redact(text: str, mask: Mask = lambda _: "***") -> str:
    """Replace each password in a statement, address or message by a mask.

    >>> redact("CREATE QUERY q WITH (sink = 'postgres://ada:pw@db/shop') AS SELECT 1")
    "CREATE QUERY q WITH (sink = 'postgres://ada:***@db/shop') AS SELECT 1"
    >>> redact("USING jdbc OPTIONS (url 'jdbc:x', password 'pw')")
    "USING jdbc OPTIONS (url 'jdbc:x', password '***')"
    """
    if not _POSSIBLE.search(text):
        return text
    text = _OPTIONS.sub(lambda found: _mask_options(found[0], mask), text)
    parts: list[str] = []
    end = 0
    for literal in _LITERAL.finditer(text):
        parts += (_mask_addresses(text[end : literal.start()], mask), _mask_literal(literal[0], "", mask))
        end = literal.end()
    return "".join((*parts, _mask_addresses(text[end:], mask)))


def redact_address(text: str) -> str:
    """Replace the password of an address, which may contain blanks, by `***`.

    >>> redact_address("postgres://ada:p w@db/shop")
    'postgres://ada:***@db/shop'
    """
    return _mask_value(text, "", lambda _: "***")


def mask_secrets(text: str) -> str:
    """Replace each password in a text by stars; other characters keep their positions."""
    return redact(text, _stars)


def resolve_secrets(
    text: str, convert: Callable[[str], str] = str, environ: Mapping[str, str] | None = None
) -> str:
    """Replace references to environment variables by their values.

    >>> resolve_secrets("u:${SLICEMILL_SECRET_A}", environ={"SLICEMILL_SECRET_A": "pw"})
    'u:pw'
    """
    known = os.environ if environ is None else environ

    def value(found: re.Match[str]) -> str:
        if found[1] not in known:
            raise SlicemillError(f"the environment variable {found[1]} is not set; set it for this process")
        return convert(known[found[1]])

    return _REFERENCE.sub(value, text)


def _stars(secret: str) -> str:
    return re.sub(r"\S", "*", secret)


def _mask_secret(secret: str, mask: Mask) -> str:
    quote = secret[:1] if secret[:1] in ('"', "'") and secret[-1:] == secret[:1] and len(secret) > 1 else ""
    inner = secret[len(quote) : len(secret) - len(quote)]
    return secret if not inner or _REFERENCE.fullmatch(inner) else f"{quote}{mask(inner)}{quote}"


def _mask_value(value: str, name: str, mask: Mask) -> str:
    """Mask the password in the value of an option, or in an address without a name."""
    if "jaas" in name.lower():  # the value is a list of parameters, which includes the password
        return _mask_parameters(value, mask)
    if names_secret(name):
        return _mask_secret(value, mask)
    if not _ADDRESS.search(value):
        return value
    return _mask_parameters(_mask_user(value, mask), mask)


def _mask_user(text: str, mask: Mask) -> str:
    """Mask the password of an address, up to the last @.

    The password may contain an unescaped @.
    """
    found = _USER.search(text)
    if found is None:
        return text
    reference = _REFERENCE.match(text, found.end())
    if reference is not None and text[reference.end() : reference.end() + 1] == "@":
        return text[: reference.end()] + _mask_user(text[reference.end() :], mask)
    end = text.rfind("@", found.end())
    return text if end <= found.end() else text[: found.end()] + mask(text[found.end() : end]) + text[end:]


def _mask_parameters(text: str, mask: Mask) -> str:
    def of(found: re.Match[str]) -> str:
        if not names_secret(unquote(found[2])):
            return found[0]
        return f"{found[1]}{found[2]}{found[3]}{_mask_secret(found[4], mask)}"

    return _PARAMETER.sub(of, text)


def _mask_options(text: str, mask: Mask) -> str:
    def of(found: re.Match[str]) -> str:
        name = found[1].strip(" \t\r\n='‘’\"`").replace('"', "").replace("`", "")
        return found[1] + _mask_literal(found[2], name, mask)

    return _OPTION.sub(of, text)


def _mask_literal(literal: str, name: str, mask: Mask) -> str:
    value = _mask_value(literal[1:-1].replace("''", "'"), name, mask)
    return literal[0] + (value.replace("'", "''") if literal[0] == "'" else value) + literal[-1]


def _mask_addresses(text: str, mask: Mask) -> str:
    """Mask the passwords of addresses outside of literals; an address ends at a blank."""

    def of(found: re.Match[str]) -> str:
        is_address = "://" in found[0] or _USER.search(found[0]) is not None
        return _mask_value(found[0], "", mask) if is_address else found[0]

    return _WORD.sub(of, text)
