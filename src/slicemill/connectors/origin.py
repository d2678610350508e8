"""Source clauses of streams and tables: format and options of a source.

A source is a URL, or `USING format OPTIONS (…)`. Examples of URLs are `tcp://host:port`, `port4445`,
`rate://?rowsPerSecond=5`, `nexmark://bid?rate=1000`, `rfid://reading?tags=5`, `highway://road?days=7`,
`kafka://host:9092/topic`, and a path with options such as `readings?format=csv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from slicemill.catalog.catalog import SourceSpec
from slicemill.errors import SlicemillError
from slicemill.secrets import redact_address

LINES_IN_FILES = ("csv", "json", "jsonl", "ndjson")
TYPED_FILES = ("parquet", "orc", "avro")
GUESSED = ""  # format of a source clause without a format, which is derived from file names

_PORT = re.compile(r"port(\d+)")


@dataclass(frozen=True, slots=True)
class SourceOrigin:
    """Format and options of a source.

    `file` is the local file, folder or glob pattern of the option `path`. `file` is None without the option
    `path`, or if the path has a URL scheme other than file:.
    """

    format: str
    options: Mapping[str, str]
    file: Path | None = None

    def option(self, name: str) -> str | None:
        return {key.lower(): value for key, value in self.options.items()}.get(name.lower())

    def without(self, *names: str) -> dict[str, str]:
        return {key: value for key, value in self.options.items() if key.lower() not in names}

    def require_file(self) -> Path | None:
        """Return `file`, or raise if the option `path` is missing."""
        if self.option("path") is None:
            raise SlicemillError(f"USING {self.format} needs OPTIONS (path '…')")
        return self.file


def origin_of(spec: SourceSpec, name: str, folder: Path = Path()) -> SourceOrigin:
    """Parse a SOURCE or USING clause to the format and options of the source.

    Paths are relative to `folder`.
    """
    found = guess_origin(spec, name, folder)
    if found.format != GUESSED:
        return found
    path = found.option("path")
    if path is None:
        raise SlicemillError(f"the format of {name} is empty; write USING csv OPTIONS (path '…'), or another")
    return replace(found, format=_format_of(found.file or Path(path)))


def guess_origin(spec: SourceSpec, name: str, folder: Path = Path()) -> SourceOrigin:
    """Parse a SOURCE or USING clause without access to files.

    The format is GUESSED if it must be derived from file names.
    """
    if spec.format is not None:
        return _origin(spec.format.lower(), spec.options, folder)
    if spec.url is None:
        raise SlicemillError(f"{name} has no SOURCE, so there is nothing to read; rows are fed by a program")
    port = _PORT.fullmatch(spec.url)
    text = f"tcp://localhost:{port[1]}" if port else spec.url.strip()
    scheme = scheme_of(text)
    if scheme in _ADDRESSES:
        url = _split(text)
        options = parse_qsl(url.query)
        return _origin(scheme, [*_ADDRESSES[scheme](url), *options], folder)
    path, _, query = text.partition("?")
    given = dict(parse_qsl(query))
    form = given.pop("format", GUESSED).lower()
    return _origin(form, [("path", path), *given.items()], folder)


def _split(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        _ = url.hostname
    except ValueError as problem:
        raise SlicemillError(f"'{redact_address(text)}' is no address: {problem}") from None
    return url


def _tcp(url: SplitResult) -> list[tuple[str, str]]:
    return [("host", url.hostname or ""), ("port", url.netloc.rpartition(":")[2])]


def _generator_options(url: SplitResult) -> list[tuple[str, str]]:
    return [("stream", url.netloc or url.path.strip("/"))]


def _kafka(url: SplitResult) -> list[tuple[str, str]]:
    return [("kafka.bootstrap.servers", url.netloc), ("subscribe", url.path.strip("/"))]


def _rate(_: SplitResult) -> list[tuple[str, str]]:
    return []


_ADDRESSES = {
    "tcp": _tcp,
    "highway": _generator_options,
    "nexmark": _generator_options,
    "rfid": _generator_options,
    "kafka": _kafka,
    "rate": _rate,
}


def _origin(form: str, options: Iterable[tuple[str, str]], folder: Path) -> SourceOrigin:
    """Return the format and options of a source, with its local path.

    If an option occurs twice, the last value applies.
    """
    last = {name.lower(): (name, value) for name, value in options}
    path = last.get("path")
    return SourceOrigin(form, dict(last.values()), None if path is None else local_path(path[1], folder))


def _format_of(path: Path) -> str:
    """Derive the format from the suffix of a file, or of the files in a folder."""
    inside = sorted(path.glob("[!._]*")) if path.is_dir() else []
    for entry in (path, *inside):
        for suffix in entry.suffixes:
            if suffix[1:].lower() in (*LINES_IN_FILES, *TYPED_FILES):
                return suffix[1:].lower()
    if not path.exists() and not set("*?[{") & set(str(path)):
        raise SlicemillError(f"there is no file or folder {path}")
    raise SlicemillError(
        f"the format of {path} cannot be derived from file names; write USING csv OPTIONS (path '…')"
    )


def is_socket(spec: SourceSpec) -> bool:
    """Return True if a source is a socket, which cannot be read a second time."""
    if spec.format is not None:
        return spec.format.lower() == "tcp"
    return spec.url is not None and bool(_PORT.fullmatch(spec.url) or scheme_of(spec.url.strip()) == "tcp")


# Local paths of sources and sinks, whose text is parsed only once
#
#     plain text        readings/1.csv, /data/a#b        no character is escaped
#     file: URL         file:///data/a%20b               percent-encoded
#
# The permission check (`server/permissions.py`) and the reader or sink use the same parsed path.


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# Control characters, and surrogates that cannot occur in a file name.
_IMPOSSIBLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udc7f\udd00-\udfff]")
# Separators of names in a glob pattern, which include braces and commas.
# A backslash escapes the next character.
_PARTS = re.compile(r"[/{},]")


def scheme_of(text: str) -> str:
    """Return the scheme of a URL in lower case, or "" for a path.

    >>> scheme_of("FILE:/data"), scheme_of("/data/a:b")
    ('file', '')
    """
    found = _SCHEME.match(text)
    return "" if found is None else found[1].lower()


def local_path(text: str, folder: Path) -> Path | None:
    """Return the local path of a path or file: URL, relative to `folder`.

    Return None for any other URL.
    """
    if scheme_of(text) not in ("", "file"):
        return None
    return path_below(folder, _local_text(text))


def path_below(folder: Path, path: str) -> Path:
    """Return the path of a file below a folder.

    An absolute path is returned unchanged.
    """
    if _IMPOSSIBLE.search(path):
        raise SlicemillError(f"the path {path!r} has characters that no name of a file or folder can have")
    return folder / path


def _local_text(text: str) -> str:
    """Return the decoded path of a path or file: URL."""
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
    """Return True if a path or glob pattern has a `..` component.

    >>> climbs(Path("/data/../etc")), climbs(Path("/data/{../etc,x}")), climbs(Path("/data/a..b"))
    (True, True, False)
    """
    return ".." in _PARTS.split(str(path).replace("\\", ""))
