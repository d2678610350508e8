"""Access tokens, and the principals (authenticated clients) and roles that they stand for.

The home directory stores tokens as hashes in `access/tokens.json`. A token is shown once, when it is created.

    [{"name": "ann", "role": "operator", "names": ["sales_*"], "salt": "…", "hash": "…", "at": 17…}]

A home directory that never had a token is open: a server on a loopback address serves every client as its
owner. The first token also creates the file `access/closed`. A home directory with one of the two files is
closed, even if `tokens.json` is lost, empty or damaged. The folder alone does not close the home directory,
because the folder contains the audit log as well. A server that has seen one of the files, or that listens on
a public address, stays closed until it ends.

`names` are glob patterns. A principal with patterns can read and change only objects whose names match. ESL
has no schemas, so objects of one user get a common name prefix instead.
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
from slicemill.storage.filesystem import LOCAL, StorageFull, ensure_folder, write_atomically

_FOLDER, _FILE, _MARK = "access", "tokens.json", "closed"
_MARK_TEXT = b"This home directory has had tokens: its server requires one, even if tokens.json is lost.\n"
_TOKEN_BYTES = 32


class UserRole(IntEnum):
    """Role of a principal. Each role includes the permissions of all lower roles."""

    READER = 1  # may read results, run ad hoc queries, and read the catalog and metrics
    OPERATOR = 2  # may also create, drop and change streams and queries, and change settings
    ADMIN = 3  # may also manage tokens, and read the audit log and support bundles

    @property
    def word(self) -> str:
        return self.name.lower()


class PermissionDenied(SlicemillError):
    """Error: an authenticated principal lacks the permission for a request."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Authenticated client. The name None is the user that started the server process."""

    name: str | None
    role: UserRole
    names: tuple[str, ...] = ()

    def require(self, role: UserRole, what: str) -> None:
        """Raise PermissionDenied unless the principal has at least this role."""
        if self.role < role:
            raise PermissionDenied(f"{what} requires role {role.word}; {self.name} has role {self.role.word}")

    def may_name(self, name: str) -> bool:
        """Return True if the principal may read and change an object of this name."""
        return not self.names or any(fnmatchcase(name.lower(), pattern) for pattern in self.names)

    def require_name(self, name: str) -> None:
        if not self.may_name(name):
            raise PermissionDenied(
                f"{self.name} may only use names like {' or '.join(self.names)}, not {name}"
            )


OWNER = Principal(None, UserRole.ADMIN)


class TokenFileError(SlicemillError):
    """Error: the token file exists but cannot be read."""


class Access:
    """Tokens of a server. The token file is read again when it changes.

    With `closed`, a token is required even if the home directory never had one.
    """

    def __init__(self, home: Path | None = None, closed: bool = False) -> None:
        self._file = None if home is None else home / _FOLDER / _FILE
        self._read: tuple[tuple[int, ...], list[dict[str, Any]]] | None = None
        self._closed = closed
        self._closed = self.requires_token  # this also detects a file that is lost before the first request

    @property
    def requires_token(self) -> bool:
        """True if every client must present a token."""
        if not self._closed and self._file is not None:
            try:
                marked = self._file.with_name(_MARK).exists()
                self._closed = marked or self._version() is not None
                if self._closed and not marked:  # a home directory of an earlier version
                    self._mark(self._file)
            except (OSError, StorageFull):
                self._closed = True
        return self._closed

    def close(self) -> None:
        """Require a token from every client from now on."""
        self._closed = True

    def principal(self, token: str | None) -> Principal | None:
        """Return the principal of a token, or None if the client must be rejected."""
        if not self.requires_token:
            return OWNER
        if token is None:
            return None
        try:
            entries = self.entries()
        except TokenFileError:
            return None  # the method `problems` reports an unreadable token file
        found = None
        # All entries are compared, so that the time does not reveal which entry matches.
        for entry in entries:
            if hmac.compare_digest(_hash(token, entry["salt"]), entry["hash"]):
                found = Principal(entry["name"], UserRole[entry["role"].upper()], tuple(entry["names"]))
        return found

    def problems(self) -> list[str]:
        """Return the reasons why the server accepts no token, or an empty list."""
        if not self.requires_token:
            return []
        try:
            entries = self.entries()
        except TokenFileError as problem:
            return [f"all requests are rejected: {problem}"]
        if not entries:
            return ["all requests are rejected: there is no token; create one with slicemill token add"]
        return []

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of the token file. Raises TokenFileError if the file is damaged."""
        if self._file is None:
            return []
        try:
            version = self._version()
            if version is None:
                return []
            if self._read is None or self._read[0] != version:
                self._read = version, _validate_entries(json.loads(self._file.read_bytes()))
        except FileNotFoundError:
            return []
        except (OSError, ValueError, RecursionError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is damaged"
            raise TokenFileError(
                f"{_FOLDER}/{_FILE} of the home directory cannot be read ({reason}); "
                "restore it, or remove it and create new tokens with slicemill token add"
            ) from None
        return self._read[1]

    def _version(self) -> tuple[int, ...] | None:
        """Return a fingerprint of the token file, or None if there is no file."""
        assert self._file is not None, "a token file is in a home directory"
        try:
            found = self._file.stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def add(self, name: str, role: str, names: Sequence[str], at_us: int) -> str:
        """Create a token for a name and return it. The token cannot be read again."""
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
        """Revoke the token of a name. Open connections are closed on their next request."""
        entries = self.entries()
        left = [entry for entry in entries if entry["name"] != name]
        if len(left) == len(entries):
            raise SlicemillError(f"there is no token of {name}")
        self._write(left)

    def _write(self, entries: list[dict[str, Any]]) -> None:
        if self._file is None:
            raise SlicemillError("tokens are stored in a home directory; add --home FOLDER")
        ensure_folder(LOCAL, self._file.parent)
        self._mark(self._file)
        write_atomically(LOCAL, self._file, json.dumps(entries, indent=1).encode(), durable=True)

    @staticmethod
    def _mark(file: Path) -> None:
        """Write the file `closed`, which records that the home directory has had tokens."""
        write_atomically(LOCAL, file.with_name(_MARK), _MARK_TEXT, durable=True)


def _validate_entries(content: object) -> list[dict[str, Any]]:
    """Return the entries of a token file. Raises ValueError if the file is not in the format of `add`."""
    if not isinstance(content, list):
        raise ValueError("the content is not a list")
    for entry in content:
        if not isinstance(entry, dict):
            raise ValueError("an entry is not an object")
        texts = all(isinstance(entry.get(key), str) for key in ("name", "role", "salt", "hash"))
        names = entry.get("names")
        if not texts or not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise ValueError("an entry lacks a field")
        if entry["role"].upper() not in UserRole.__members__:
            raise ValueError("an entry has an unknown role")
        if not (entry["salt"] + entry["hash"]).isascii():
            raise ValueError("an entry has no hash")
    return content


@lru_cache(maxsize=1024)
def _hash(token: str, salt: str) -> str:
    """Return the salted hash of a token. A token has 256 random bits, so one round suffices."""
    return hashlib.sha256(f"{salt}:{token}".encode()).hexdigest()
