"""Registry of sinks by URL, as in `WITH (sink = 'parquet:out/q')`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from slicemill.catalog.catalog import TABLE_SINK
from slicemill.connectors.origin import path_below
from slicemill.connectors.sinks import folder as arrow
from slicemill.connectors.sinks import folder as json_lines
from slicemill.connectors.sinks import folder as parquet
from slicemill.connectors.sinks.console import DEFAULT_ROWS, ConsoleSink
from slicemill.connectors.sinks.folder import Encode, FolderSink
from slicemill.connectors.sinks.memory import CallableSink, MemorySink, MemoryTable, Receive
from slicemill.connectors.sinks.postgres import open_postgres, split_table
from slicemill.connectors.sinks.sink import Sink, SinkError
from slicemill.errors import did_you_mean, one_of
from slicemill.secrets import redact_address
from slicemill.storage.filesystem import SHARED, FileSystem
from slicemill.types import Schema

FILE_SINKS = ("json", "jsonl", "parquet", "arrow")
POSTGRES_SINKS = ("postgres", "postgresql")


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """Parsed URL of a sink.

    `path` is the folder of a file sink. If `as_log` is set, changes are written with their operation (`_op`).
    `url` is the URL without that option.
    """

    scheme: str
    url: str
    path: Path | None = None
    as_log: bool = False


@dataclass(frozen=True, slots=True)
class _Request:
    """Target of a sink, with the query whose results the sink receives."""

    target: SinkTarget
    query: str
    schema: Schema
    files: FileSystem
    durable: bool

    @property
    def url(self) -> str:
        return self.target.url

    @property
    def as_log(self) -> bool:
        return self.target.as_log


def open_sink(
    target: str | Receive,
    query: str,
    schema: Schema,
    *,
    folder: Path = Path(),
    files: FileSystem = SHARED,
    durable: bool = False,
) -> Sink:
    """Create the sink of a query from a URL or a Python function.

    Paths are relative to `folder`. An invalid URL raises a SinkError here. An unreachable target raises an
    error later, in `resume`.
    """
    if not isinstance(target, str):
        return CallableSink(target)
    found = sink_target(target, query, folder)
    if found.as_log and not schema.changelog:
        raise SinkError(f"query {query} has results that do not change; leave changelog=true out of its sink")
    return _SCHEMES[found.scheme](_Request(found, query, schema, files, durable))


def sink_target(text: str, query: str, folder: Path = Path()) -> SinkTarget:
    """Parse the sink URL of a query; paths are relative to `folder`.

    >>> sink_target("json:out/a%20b", "q", Path("/data")).path
    PosixPath('/data/out/a b')
    """
    scheme, colon, _ = text.partition(":")
    if not colon or scheme.lower() not in _SCHEMES:
        known = [*(f"{name}:" for name in _SCHEMES), TABLE_SINK]
        hint = did_you_mean(f"{scheme}:", known) or f"a sink is {one_of(known)}"
        raise SinkError(f"query {query}: '{scheme}' is no kind of sink; {hint}")
    url, as_log = _split_changelog(text, query)
    path = _folder_of(url, query, folder) if scheme.lower() in FILE_SINKS else None
    return SinkTarget(scheme.lower(), url, path, as_log)


def _folder_of(url: str, query: str, folder: Path) -> Path:
    scheme, _, rest = url.partition(":")
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    if not path or host or "?" in rest or "#" in rest:
        raise SinkError(
            f"query {query}: '{redact_address(url)}' should be {scheme.lower()}: and a folder, "
            f"as in {scheme.lower()}:out/{query}; write ? and # in its name as %3F and %23"
        )
    return path_below(folder, unquote(slash + path))


def _split_changelog(url: str, query: str) -> tuple[str, bool]:
    """Split the URL of a sink into the URL without `changelog=true`, and this option.

    >>> _split_changelog("json:out?changelog=true", "q"), _split_changelog("memory:?rows=3", "q")
    (('json:out', True), ('memory:?rows=3', False))
    """
    address, mark, options = url.partition("?")
    parts = options.split("&")
    asked = [part for part in parts if part.startswith("changelog=")]
    if not asked:
        return url, False
    if asked[-1] not in ("changelog=true", "changelog=false"):
        raise SinkError(f"query {query}: write changelog=true, or leave it out")
    kept = "&".join(part for part in parts if part not in asked)
    return address + (mark + kept if kept else ""), asked[-1] == "changelog=true"


def share_persistent_target(before: str, after: str | None) -> bool:
    """Return True if two sinks write to the same persistent target.

    >>> share_persistent_target("json:out", "json:out?changelog=true")
    True
    >>> share_persistent_target("memory:", "memory:")
    False
    """
    if after is None or before.partition(":")[0].lower() in ("memory", "console"):
        return False
    return _split_changelog(before, "")[0] == _split_changelog(after, "")[0]


def alternative_target(url: str, query: str) -> str:
    """Return the URL of another target next to the target of a sink.

    >>> alternative_target("postgres://ada@db/shop?sslmode=require", "hot")
    'postgres://ada@db/shop?sslmode=require&table=hot_2'
    >>> alternative_target("json:out/hot", "hot")
    'json:out/hot_2'
    """
    if not url.lower().startswith(("postgres:", "postgresql:")):
        address, mark, options = url.partition("?")
        return f"{address.rstrip('/')}_2{mark}{options}"
    address, table = split_table(url)
    return f"{address}{'&' if '?' in address else '?'}table={table or query}_2"


def _console(request: _Request) -> Sink:
    return ConsoleSink(request.query, request.schema, _rows(request) or DEFAULT_ROWS)


def _memory(request: _Request) -> Sink:
    rows = _rows(request)
    if not request.schema.changelog or request.as_log:
        return MemorySink(request.schema, rows)
    if rows is not None:
        raise SinkError(
            f"query {request.query} changes: memory: has its table, and memory:?changelog=true&rows={rows} "
            "its newest changes"
        )
    return MemoryTable(request.schema)


def _rows(request: _Request) -> int | None:
    parts = urlsplit(request.url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    text = options.pop("rows", None)
    if options or parts.netloc or parts.path or (text is not None and not (text.isdecimal() and int(text))):
        url, scheme = redact_address(request.url), parts.scheme
        raise SinkError(f"query {request.query}: '{url}' should be {scheme}: or {scheme}:?rows=100")
    return None if text is None else int(text)


def _folder(suffix: str, encode: Encode) -> Callable[[_Request], Sink]:
    def opened(request: _Request) -> Sink:
        assert request.target.path is not None, "sinks of files have one"
        if request.schema.changelog and not request.as_log:
            url = redact_address(request.url)
            raise SinkError(
                f"query {request.query} changes, and rows in a file cannot be retracted; write all changes "
                f"('{url}?changelog=true'), end the SELECT with EMIT FINAL, or use a Postgres table"
            )
        return FolderSink(request.target.path, suffix, encode, request.files, request.durable)

    return opened


def _postgres(request: _Request) -> Sink:
    return open_postgres(request.url, request.query, request.schema, request.as_log)


_JSON_LINES = _folder(json_lines.JSON_LINES_SUFFIX, json_lines.encode_json_lines)
_SCHEMES: dict[str, Callable[[_Request], Sink]] = {
    "console": _console,
    "memory": _memory,
    "json": _JSON_LINES,
    "jsonl": _JSON_LINES,
    "parquet": _folder(parquet.PARQUET_SUFFIX, parquet.encode_parquet),
    "arrow": _folder(arrow.ARROW_SUFFIX, arrow.encode_arrow),
    "postgres": _postgres,
    "postgresql": _postgres,
}
