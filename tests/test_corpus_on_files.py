"""The corpus through real files: the product reads CSV and JSON, and the test adds no values.

Each tuple is a separate file, which is read when the clock has the time of the tuple's arrival.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from slicemill.catalog.catalog import SourceSpec, Stream
from slicemill.testing import Clock, inline_pool, open_mill
from slicemill.types import Column, Kind, Row, TimestampUnit
from support.corpus import Case, Event, Runnable, check_rows, prepare, sent_row
from support.engine import finish, results_of, turn
from support.placed_cases import placed_cases

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNIT_US = {TimestampUnit.SECONDS: 1_000_000, TimestampUnit.MILLIS: 1_000, TimestampUnit.MICROS: 1}
SPELLED = {"csv": "USING csv OPTIONS (path '{}/*')", "json": "USING json OPTIONS (path '{}/*')"}
# `make test` has a case for each operator and placement; `make test-slow` has all cases, and CSV.
PLACED = {case.name: case for case, _ in placed_cases().values()}
# A declaration of a stream without a source, up to its semicolon.
DECLARATION = re.compile(
    r"CREATE\s+(?:STREAM|SOURCE)\s+(\w+)\s*\((?:'[^']*'|--.*|[^;'])*?(?=;|\Z)", re.IGNORECASE
)


def written(value: Any, column: Column) -> Any:
    """Return a value as a program would write it."""
    if column.type.kind is Kind.TIMESTAMP and isinstance(value, int):
        if column.type.unit is TimestampUnit.NANOS:
            return value * 1_000
        if column.type.unit is not None:
            return value // UNIT_US[column.type.unit]
        return (EPOCH + timedelta(microseconds=value)).isoformat()
    if column.type.kind is Kind.DATE and value is not None:
        return (EPOCH + timedelta(days=value)).date().isoformat()
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Decimal) or hasattr(value, "isoformat") else value


def line_of(stream: Stream, row: Row, form: str) -> str:
    pairs = zip(sent_row(stream, row), stream.encoded_schema, strict=True)
    values = [written(value, column) for value, column in pairs]
    if form == "json":
        return json.dumps(dict(zip(stream.source_schema.names, values, strict=True))) + "\n"
    out = io.StringIO()
    csv.writer(out).writerow([str(value).lower() if isinstance(value, bool) else value for value in values])
    return out.getvalue()


def left_out(runnable: Runnable, streams: dict[str, Stream], form: str) -> str | None:
    """Return why a case cannot come from files; None if it can."""
    rows = [event.row for event in runnable.events]
    if any(row is None for row in rows):
        return "files have no punctuations"
    if runnable.changes:
        return "its tables change while tuples arrive"
    if any(stream.source != SourceSpec() for stream in streams.values()):
        return "it has a source of its own"
    kinds = {column.type.kind for stream in streams.values() for column in stream.source_schema}
    if kinds & {Kind.INTERVAL, Kind.MONTHS, Kind.PERIOD, Kind.BINARY}:
        return "its streams have types that sources do not have"
    if form == "csv" and (Kind.LIST in kinds or any("" in row for row in rows if row)):
        return "CSV has no lists and no empty texts"
    return None


class FileSource:
    """Write the tuples of each stream as files, and read them with an engine."""

    def __init__(self, runnable: Runnable, form: str, folder: Path) -> None:
        self.runnable, self.form, self.folder = runnable, form, folder
        self.clock = Clock()
        self.files = 0

    def script(self) -> str:
        """Return the script of the case with a source for each stream."""

        def with_source(found: re.Match[str]) -> str:
            folder = self.folder / found[1].lower()
            folder.mkdir()
            return f"{found[0]} {SPELLED[self.form].format(folder)}"

        return DECLARATION.sub(with_source, self.runnable.case.esl)

    def write(self, stream: Stream, events: Sequence[Event]) -> None:
        """Write tuples that arrive together as one new file of their stream."""
        self.files += 1
        made = self.folder / f"{self.files:06d}"
        rows = [event.row for event in events if event.row is not None]
        made.write_text("".join(line_of(stream, row, self.form) for row in rows))
        os.utime(made, (1_700_000_000 + self.files,) * 2)
        made.rename(self.folder / stream.name.lower() / made.name)


def check_from_files(case: Case, form: str, folder: Path) -> None:
    """Run a case whose tuples come from files of a format, and compare its results."""
    runnable = prepare(case)
    declared = {
        stream.name: stream for stream in runnable.catalog.relations.values() if isinstance(stream, Stream)
    }
    if reason := left_out(runnable, declared, form):
        pytest.skip(reason)
    source = FileSource(runnable, form, folder)
    with open_mill(home=folder / "home", pool=inline_pool(), clock=source.clock) as mill:
        for name, rows in runnable.tables.items():
            mill.tables.set_rows(name, rows)
        mill.execute(source.script())
        mill.open()
        streams = {name: running.stream for name, running in mill.running.streams.items()}
        turn(mill)
        moments = groupby(runnable.events, key=lambda event: (event.arrival_us, event.stream))
        for (source.clock.now, stream), events in moments:
            if stream in streams:
                source.write(streams[stream], list(events))
                mill.running.streams[stream].handle_notice()  # polls again within the same moment
                turn(mill)
        finish(mill)
        results = results_of(mill)
    for query, expected in runnable.expected.items():
        check_rows(expected, results[query.lower()], query)


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in PLACED.items()])
def test_a_case_gives_its_rows_from_json_files(case: Case, tmp_path: Path) -> None:
    check_from_files(case, "json", tmp_path)
