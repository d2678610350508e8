"""REPLAY: parse the bad rows of a stream again, and append them as newly arrived rows.

    s_errors  raw, reason ──► parse, as s is declared now ──┬─► rows of s, like any that arrive now
                                                            └─► s_errors again, with the new reason

The driver parses the texts. A worker appends the rows through the intake, which decides which rows are late
by now. One journal record has the rows, the texts that failed again, and the sequence numbers of all parsed
texts. The numbers are ranges in the stream's field `replayed`. So each text is parsed again exactly once,
also after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.catalog.catalog import ERROR_SCHEMA, SourceSpec, Stream
from slicemill.catalog.expressions import Expr
from slicemill.catalog.statements import Replay, ReplayOutcome
from slicemill.columns.arrow_schema import SEQ
from slicemill.connectors.origin import origin_of
from slicemill.connectors.tcp.reader import tcp_options
from slicemill.errors import SlicemillError
from slicemill.functions.evaluate import compile_vector
from slicemill.ingest.formats.checked import ERRORS, FILE_LOST, Parsed, WantedColumns, concat_nonempty
from slicemill.ingest.formats.csv import csv_format
from slicemill.ingest.formats.line_parser import CSV_LINES, EITHER, JSON, LineParser
from slicemill.ingest.formats.lines import split
from slicemill.ingest.stream import HandedRows
from slicemill.runtime.driver import Dispatcher
from slicemill.runtime.driver_limit import CpuTimeLimit
from slicemill.runtime.streams import ReplayedRows
from slicemill.storage.filesystem import LOCAL, unique_name
from slicemill.storage.home import Home
from slicemill.storage.log import Epoch
from slicemill.storage.segments import SegmentWriter
from slicemill.time import BEGINNING

REPLAYED = "replayed"
Ranges = list[list[int]]

# Approximate number of bad rows that are parsed and appended together.
_ROWS_AT_ONCE = 100_000
_NO_TEXT = "its bytes were not valid UTF-8, so the stored text differs from the bytes that arrived"
_TRUE = ("true", "1", "yes")


def replay(statement: Replay, dispatcher: Dispatcher, home: Home, folder: Path, now: int) -> ReplayOutcome:
    """Parse the bad rows of a stream (rows that did not fit its declaration) again, each at most once."""
    stream = dispatcher.streams.get(statement.stream)
    if stream is None:
        raise SlicemillError(
            f"{statement.stream} is not read: it has no query and no RETAIN; create a query over it"
        )
    if stream.ended:
        raise SlicemillError(f"{statement.stream} has ended and accepts no more rows")
    parser = parser_of(stream.stream, folder)
    read = failed = late = 0
    with dispatcher.paused():
        tried: Ranges = stream.fields.get(REPLAYED, [])
        log = home.logs[statement.name]
        for epochs in _batches(log.epochs()):
            table = pa.concat_tables([log.read(epoch) for epoch in epochs])
            table = table.filter(pa.array(~_within(_numbers(table), tried)))
            # The row of a file that could not be read has only the file name, and no text to parse.
            table = table.filter(pc.invert(pc.starts_with(table.column("reason"), FILE_LOST)))
            if statement.where is not None:
                table = table.filter(_matches(statement.where, table))
            if not table.num_rows:
                continue
            parsed = _parse_texts(table.column("raw").to_pylist(), parser)
            first = log.epochs()[0]
            kept_from = int(_numbers(log.read(first)).min(initial=0))
            tried = add_numbers([one for one in tried if one[1] >= kept_from], _numbers(table).tolist())
            handed = _write_rows(parsed, stream.feed_folder, now)
            late_before = stream.counts.late
            try:
                dispatcher.admit_rows(stream, ReplayedRows(handed, {REPLAYED: tried}))
            finally:
                for extent in (*handed.rows, *handed.errors):
                    LOCAL.remove(handed.folder / extent.segment)
            read += parsed.table.num_rows
            failed += parsed.errors.num_rows if parsed.errors is not None else 0
            late += stream.counts.late - late_before
    dispatcher.notify()
    return ReplayOutcome(read, failed, late)


def parser_of(stream: Stream, folder: Path) -> LineParser:
    """Return a parser for the texts of a stream's bad rows, which are lines or JSON."""
    wanted = WantedColumns.of(stream, stream.schema.names)
    names = stream.source_schema.names
    if stream.source == SourceSpec():
        return LineParser(wanted, JSON, csv_format(names, {}))
    origin = origin_of(stream.source, stream.name, folder)
    form = {"csv": CSV_LINES, "tcp": EITHER, "json": JSON, "parquet": JSON}.get(origin.format, EITHER)
    if origin.format == "tcp":
        form = tcp_options(origin.options).lines
    if form == CSV_LINES and (origin.option("header") or "").lower() in _TRUE:
        raise SlicemillError(
            f"the columns of {stream.name} are named by the headers of its files, and bad rows are stored "
            "without the header; they cannot be replayed"
        )
    return LineParser(wanted, form, csv_format(names, origin.options if form != JSON else {}))


def add_numbers(ranges: Iterable[Sequence[int]], numbers: Iterable[int]) -> Ranges:
    """Add numbers to a sorted list of ranges [first, last], and merge adjacent ranges.

    >>> add_numbers([[0, 2], [7, 7]], [3, 6, 9])
    [[0, 3], [6, 7], [9, 9]]
    """
    found: Ranges = []
    for first, last in sorted([*((one[0], one[1]) for one in ranges), *((n, n) for n in numbers)]):
        if found and first <= found[-1][1] + 1:
            found[-1][1] = max(found[-1][1], last)
        else:
            found.append([first, last])
    return found


def _within(numbers: npt.NDArray[np.int64], ranges: Ranges) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(numbers), np.bool_)
    for first, last in ranges:
        found |= (numbers >= first) & (numbers <= last)
    return found


def _numbers(table: pa.Table) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = table.column(SEQ).to_numpy()
    return found


def _batches(epochs: Sequence[Epoch]) -> Iterable[list[Epoch]]:
    """Group epochs into batches of about `_ROWS_AT_ONCE` rows."""
    batch: list[Epoch] = []
    rows = 0
    for epoch in epochs:
        batch.append(epoch)
        rows += epoch.rows
        if rows >= _ROWS_AT_ONCE:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch


def _matches(where: Expr, table: pa.Table) -> pa.ChunkedArray:
    with CpuTimeLimit("the condition of REPLAY"):
        return pc.fill_null(compile_vector(where, ERROR_SCHEMA)(table), False)


def _parse_texts(texts: Sequence[str | None], parser: LineParser) -> Parsed:
    """Parse the text of each bad row as one row.

    A text with line breaks or undecodable characters counts as a bad row.
    """
    whole = [text for text in texts if text is not None and not {"\ufffd", "\n", "\r"} & set(text)]
    broken = [text for text in texts if text is None or {"\ufffd", "\n", "\r"} & set(text)]
    parsed = parser.parse(split("".join(f"{text}\n" for text in whole).encode(), universal=False))
    bad = pa.table([broken, [_NO_TEXT] * len(broken)], schema=ERRORS) if broken else None
    errors = concat_nonempty([one for one in (parsed.errors, bad) if one is not None])
    return Parsed(parsed.table, parsed.numbers, errors)


def _write_rows(parsed: Parsed, folder: Path, now: int) -> HandedRows:
    writer = SegmentWriter(folder, unique_name())
    rows = (writer.append(parsed.table),) if parsed.table.num_rows else ()
    bad = (writer.append(parsed.errors),) if parsed.errors is not None else ()
    writer.release()
    return HandedRows(folder=folder, rows=rows, errors=bad, offset=BEGINNING, arrival_us=now, seen_us=now)
