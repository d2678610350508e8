"""The registry of sinks by URL: `CREATE QUERY q WITH (sink = 'parquet:out/q') AS …`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from slicemill.connectors.sinks import arrow, json_lines, parquet
from slicemill.connectors.sinks.callable import CallableSink, Receive
from slicemill.connectors.sinks.console import DEFAULT_ROWS, ConsoleSink
from slicemill.connectors.sinks.folder import Encode, FolderSink
from slicemill.connectors.sinks.memory import MemorySink
from slicemill.connectors.sinks.postgres import open_postgres
from slicemill.connectors.sinks.sink import Sink, SinkError
from slicemill.errors import did_you_mean, one_of
from slicemill.esl.types.schema import Schema
from slicemill.storage.files import SHARED, FileSystem


@dataclass(frozen=True, slots=True)
class _Request:
    url: str
    query: str
    schema: Schema
    folder: Path
    files: FileSystem
    durable: bool


def open_sink(
    target: str | Receive,
    query: str,
    schema: Schema,
    *,
    folder: Path = Path(),
    files: FileSystem = SHARED,
    durable: bool = False,
) -> Sink:
    """The sink of a query by its URL, or around a function; `folder` is where relative paths begin.

    A URL that means nothing is a SinkError here; a place that cannot be reached is one when it is resumed.
    """
    if not isinstance(target, str):
        return CallableSink(target)
    scheme, colon, _ = target.partition(":")
    opener = _SCHEMES.get(scheme.lower()) if colon else None
    if opener is None:
        known = [f"{name}:" for name in _SCHEMES]
        hint = did_you_mean(f"{scheme}:", known) or f"a sink is {one_of(known)}"
        raise SinkError(f"query {query}: '{scheme}' is no kind of sink; {hint}")
    return opener(_Request(target, query, schema, folder, files, durable))


def _console(request: _Request) -> Sink:
    return ConsoleSink(request.query, request.schema, _rows(request) or DEFAULT_ROWS)


def _memory(request: _Request) -> Sink:
    return MemorySink(request.schema, _rows(request))


def _rows(request: _Request) -> int | None:
    parts = urlsplit(request.url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    text = options.pop("rows", None)
    if options or parts.netloc or parts.path or (text is not None and not (text.isdecimal() and int(text))):
        raise SinkError(
            f"query {request.query}: '{request.url}' should be {parts.scheme}: or {parts.scheme}:?rows=100"
        )
    return None if text is None else int(text)


def _folder(suffix: str, encode: Encode) -> Callable[[_Request], Sink]:
    def opened(request: _Request) -> Sink:
        parts = urlsplit(request.url)
        path = unquote(parts.path)
        if not path or parts.netloc or parts.query or parts.fragment:
            raise SinkError(
                f"query {request.query}: '{request.url}' should be {parts.scheme}: and a folder, "
                f"as in {parts.scheme}:out/{request.query}"
            )
        return FolderSink(request.folder / path, suffix, encode, request.files, request.durable)

    return opened


def _postgres(request: _Request) -> Sink:
    return open_postgres(request.url, request.query, request.schema)


_JSON_LINES = _folder(json_lines.SUFFIX, json_lines.encode)
_SCHEMES: dict[str, Callable[[_Request], Sink]] = {
    "console": _console,
    "memory": _memory,
    "json": _JSON_LINES,
    "jsonl": _JSON_LINES,
    "parquet": _folder(parquet.SUFFIX, parquet.encode),
    "arrow": _folder(arrow.SUFFIX, arrow.encode),
    "postgres": _postgres,
    "postgresql": _postgres,
}
