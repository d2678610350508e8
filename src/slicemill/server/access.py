"""Who may do what: principals, by the tokens that they show.

Without tokens a server listens on this machine alone, and whoever reaches it is its user. A home's tokens lie
in `access/tokens.json`, as hashes: a token is shown once, when it is made.

    [{"name": "ann", "role": "operator", "names": ["sales_*"], "salt": "…", "hash": "…", "at": 17…}]

`names` are patterns: somebody with patterns sees and changes only what they match. ESL has no schemas, so a
common beginning of names does what a schema does elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from slicemill.errors import SlicemillError, did_you_mean
from slicemill.storage.files import PRIVATE_FOLDER

_FOLDER, _FILE = "access", "tokens.json"
_TOKEN_BYTES = 32


class UserRole(IntEnum):
    """What somebody may do; each may do what those before it may."""

    READER = 1  # look: results, questions, the catalog, figures
    OPERATOR = 2  # change: declare, drop, set
    ADMIN = 3  # keep: tokens, the audit log, a bundle for support

    @property
    def word(self) -> str:
        return self.name.lower()


class Denied(SlicemillError):
    """Somebody is known, and may not do this."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who is connected. A name of None stands for the user of the server's process."""

    name: str | None
    role: UserRole
    names: tuple[str, ...] = ()

    def require(self, role: UserRole, what: str) -> None:
        """Raise Denied unless they have at least this role."""
        if self.role < role:
            raise Denied(f"{what} is for role {role.word}; {self.name} has role {self.role.word}")

    def may_name(self, name: str) -> bool:
        """May they see and change what has this name?"""
        return not self.names or any(fnmatchcase(name.lower(), pattern) for pattern in self.names)

    def require_name(self, name: str) -> None:
        if not self.may_name(name):
            raise Denied(f"{self.name} may use names like {' or '.join(self.names)}, and not {name}")


OWNER = Principal(None, UserRole.ADMIN)


class Access:
    """The tokens of a home, read again when their file changes."""

    def __init__(self, home: Path | None = None) -> None:
        self._file = None if home is None else home / _FOLDER / _FILE

    @property
    def asks(self) -> bool:
        """Must a token be shown?"""
        return bool(self.entries())

    def principal(self, token: str | None) -> Principal | None:
        """Who has a token; None if nobody has."""
        entries = self.entries()
        if not entries:
            return OWNER
        if token is None:
            return None
        found = None
        for entry in entries:  # all of them, so that time does not tell which
            if hmac.compare_digest(_hash(token, entry["salt"]), entry["hash"]):
                found = Principal(entry["name"], UserRole[entry["role"].upper()], tuple(entry["names"]))
        return found

    def entries(self) -> list[dict[str, Any]]:
        """What is known of each token."""
        if self._file is None:
            return []
        try:
            changed_ns = self._file.stat().st_mtime_ns
        except FileNotFoundError:
            return []
        return _read(self._file, changed_ns)

    def add(self, name: str, role: str, names: Sequence[str], at_us: int) -> str:
        """Make a token for a name and return it; it cannot be read again."""
        if role.upper() not in UserRole.__members__:
            roles = [one.word for one in UserRole]
            raise SlicemillError(f"there is no role {role}; {did_you_mean(role, roles) or ', '.join(roles)}")
        entries = self.entries()
        if any(entry["name"] == name for entry in entries):
            raise SlicemillError(f"{name} has a token already; drop it first")
        token, salt = secrets.token_urlsafe(_TOKEN_BYTES), secrets.token_hex(16)
        entry = {"name": name, "role": role.lower(), "names": [one.lower() for one in names], "at": at_us}
        self._write([*entries, {**entry, "salt": salt, "hash": _hash(token, salt)}])
        return token

    def drop(self, name: str) -> None:
        """Take the token of a name away; who is connected with it is cut off with what they ask for next."""
        entries = self.entries()
        left = [entry for entry in entries if entry["name"] != name]
        if len(left) == len(entries):
            raise SlicemillError(f"there is no token of {name}")
        self._write(left)

    def _write(self, entries: list[dict[str, Any]]) -> None:
        if self._file is None:
            raise SlicemillError("tokens are kept in a home; name one with --home")
        self._file.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        temporary = self._file.with_suffix(".new")
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps(entries, indent=1), encoding="utf-8")
        temporary.replace(self._file)


@lru_cache(maxsize=4)
def _read(file: Path, _changed_ns: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return found


@lru_cache(maxsize=1024)
def _hash(token: str, salt: str) -> str:
    """A token has 256 random bits: one round of a hash is as good as many."""
    return hashlib.sha256(f"{salt}:{token}".encode()).hexdigest()
