"""Local paths of sources and sinks: parse their text once.

    plain text        readings/1.csv, /data/a#b        every character stands for itself
    a file: URL       file:///data/a%20b               percent-encoded

The permission check (`server/permissions.py`) and the reader or sink both use this path, and neither parses
the text again.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from slicemill.errors import SlicemillError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# Control characters, and surrogates that no file name can have.
_IMPOSSIBLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udc7f\udd00-\udfff]")
# In a pattern, braces and commas also separate names, and a backslash only escapes the next character.
_PARTS = re.compile(r"[/{},]")


def scheme_of(text: str) -> str:
    """Return a URL's scheme in lower case. Empty for a path.

    >>> scheme_of("FILE:/data"), scheme_of("/data/a:b")
    ('file', '')
    """
    found = _SCHEME.match(text)
    return "" if found is None else found[1].lower()


def local_path(text: str, folder: Path) -> Path | None:
    """Return the path of a plain path or file: URL; None otherwise.

    Relative paths begin at `folder`.
    """
    if scheme_of(text) not in ("", "file"):
        return None
    return path_below(folder, _local_text(text))


def path_below(folder: Path, path: str) -> Path:
    """Return a path relative to a folder, unless it is absolute."""
    if _IMPOSSIBLE.search(path):
        raise SlicemillError(f"the path {path!r} has characters that no name of a file or folder can have")
    return folder / path


def _local_text(text: str) -> str:
    """Return the decoded text of a plain path or file: URL."""
    if scheme_of(text) != "file":
        return text
    rest = text.partition(":")[2]
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise SlicemillError(
                f"'{text}' names the host {host}; write file:///path for a file on this machine"
            )
        rest = f"/{path}"
    return unquote(rest)


def climbs(path: Path) -> bool:
    """Return True if a path or pattern has a `..` component.

    >>> climbs(Path("/data/../etc")), climbs(Path("/data/{../etc,x}")), climbs(Path("/data/a..b"))
    (True, True, False)
    """
    return ".." in _PARTS.split(str(path).replace("\\", ""))
