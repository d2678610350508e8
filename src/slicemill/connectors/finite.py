"""Finite sources as Python rows: CSV, JSON lines, Parquet and generators.

A row that does not fit its schema is returned as a BadRow with an error message.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pyarrow.parquet as parquet

from slicemill.catalog.catalog import SourceSpec
from slicemill.connectors.generators import highway, nexmark, rfid
from slicemill.connectors.generators.generator import PACE_OPTIONS
from slicemill.connectors.origin import SourceOrigin, origin_of
from slicemill.errors import SlicemillError
from slicemill.functions.calendar import BLANKS
from slicemill.ingest.formats.csv import field_of, header_notice
from slicemill.ingest.formats.records import (
    NO_TEXT,
    BadRow,
    BadValueError,
    Entry,
    Record,
    converter,
    json_record,
    value_of,
    value_text,
)
from slicemill.types import Kind, Schema, TimestampUnit

Row = tuple[object, ...]

_GENERATED_PER_CHUNK = 10_000
_SLOTS_PER_CHUNK = 100


def read_rows(spec: SourceSpec, schema: Schema, folder: Path = Path()) -> Iterator[Row | BadRow]:
    """Yield the rows of a finite source; paths are relative to `folder`."""
    if origin_of(spec, "this stream", folder).format in _GENERATORS:
        times = [column.name for column in schema if column.type.kind is Kind.TIMESTAMP]
        schema = schema.with_units(tuple((name, TimestampUnit.MICROS) for name in times))
    convert = _row_converter(schema)
    for entry in _records(spec, schema, folder):
        yield entry if isinstance(entry, BadRow) else convert(*entry)


def _row_converter(schema: Schema) -> Callable[[str | None, Record], Row | BadRow]:
    columns = [(column.name, converter(column.type)) for column in schema]

    def convert(line: str | None, record: Record) -> Row | BadRow:
        values: list[object] = []
        for name, to_value in columns:
            try:
                values.append(to_value(value_of(record, name)))
            except BadValueError as problem:
                return BadRow(
                    line if line is not None else value_text(dict(record)), f"column {name}: {problem}"
                )
        return tuple(values)

    return convert


def _records(spec: SourceSpec, schema: Schema, folder: Path) -> Iterator[Entry]:
    origin = origin_of(spec, "this stream", folder)
    if origin.format in _GENERATORS:
        options = origin.without("stream")
        return _GENERATORS[origin.format](origin.options["stream"], options)
    if origin.format in _FORMATS:
        return _files(origin, schema)
    readable = ", ".join((*_FORMATS, *(f"{name}://" for name in _GENERATORS)))
    raise SlicemillError(f"cannot read {spec.url or origin.format} without Spark, only {readable}")


def _files(origin: SourceOrigin, schema: Schema) -> Iterator[Entry]:
    path = origin.require_file()
    if path is None:
        raise SlicemillError(f"cannot read {origin.option('path')} without Spark: it is not on this machine")
    if not path.exists():
        raise SlicemillError(f"there is no file or folder {path}")
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    for file in files:
        if not file.name.startswith(("_", ".")):
            yield from _FORMATS[origin.format](file, schema, origin.options)


def _lines(file: Path) -> Iterator[str | BadRow]:
    """Yield the lines of a file that are not blank."""
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            text = line.rstrip("\n")
            if not text.strip(BLANKS):
                continue
            whole = text.encode(errors="surrogateescape").decode(errors="replace")
            yield text if text == whole else BadRow(whole, NO_TEXT)


def _csv(file: Path, schema: Schema, options: Mapping[str, str]) -> Iterator[Entry]:
    """Yield a record for each line of a CSV file, with NULL for an empty field.

    Without a header, the fields are the columns in order.
    """
    separator = options.get("sep", options.get("delimiter", ","))
    quote = options.get("quote", '"')
    header: Sequence[str] | None = schema.names
    if options.get("header", "false").lower() == "true":
        header = None
    for line in _lines(file):
        if isinstance(line, BadRow):
            yield line
            continue
        fields = next(csv.reader([line], delimiter=separator, quotechar=quote))
        if header is None:
            header = [field.removeprefix("\ufeff").strip(BLANKS) for field in fields]
            told = header_notice(file.name, header, schema, known=False)
            if told is not None:
                yield BadRow(line.removeprefix("\ufeff"), told)
        elif len(fields) != len(header):
            yield BadRow(line, f"this row does not have {len(header)} fields")
        else:
            indices = {name: field_of(name, header) for name in schema.names}
            yield (
                line,
                {name: (index is not None and fields[index]) or None for name, index in indices.items()},
            )


def _json(file: Path, schema: Schema, options: Mapping[str, str]) -> Iterator[Entry]:
    del schema, options
    for line in _lines(file):
        yield line if isinstance(line, BadRow) else json_record(line)


def _parquet(file: Path, schema: Schema, options: Mapping[str, str]) -> Iterator[Entry]:
    del schema, options
    with parquet.ParquetFile(file) as data:
        for batch in data.iter_batches():
            for record in batch.to_pylist():
                yield None, record


_FORMATS: dict[str, Callable[[Path, Schema, Mapping[str, str]], Iterator[Entry]]] = {
    "csv": _csv,
    "json": _json,
    "jsonl": _json,
    "ndjson": _json,
    "parquet": _parquet,
}


def _nexmark(stream: str, options: Mapping[str, str]) -> Iterator[Entry]:
    known = {"events": nexmark.FINITE_EVENTS, "seed": 1, "rate": 10_000, "start": 0}
    unknown = set(options) - set(known) - PACE_OPTIONS
    if unknown:
        raise SlicemillError(f"nexmark:// has no option {', '.join(unknown)}; it has {', '.join(known)}")
    try:
        events, seed, start_us = (int(options.get(key, known[key])) for key in ("events", "seed", "start"))
        rate = float(options.get("rate", known["rate"]))
    except ValueError as problem:
        raise SlicemillError(f"nexmark:// takes numbers: {problem}") from None
    for first in range(0, events, _GENERATED_PER_CHUNK):
        last = min(first + _GENERATED_PER_CHUNK, events)
        yield from _rows_of_columns(
            nexmark.columns(stream, first, last, seed=seed, rate=rate, start_us=start_us)
        )


def _rfid(stream: str, options: Mapping[str, str]) -> Iterator[Entry]:
    tags = rfid.tags_of(stream, options, ignored=PACE_OPTIONS)
    if tags.seconds is None:
        tags = replace(tags, seconds=rfid.FINITE_SECONDS)
    assert tags.slots is not None
    for first in range(0, tags.slots, _SLOTS_PER_CHUNK):
        yield from _rows_of_columns(tags.readings(first, min(first + _SLOTS_PER_CHUNK, tags.slots)))


def _highway(stream: str, options: Mapping[str, str]) -> Iterator[Entry]:
    road = highway.highway_of(stream, options, ignored=PACE_OPTIONS)
    slots = highway.FINITE_DAYS * highway.SLOTS_PER_DAY if road.slots is None else road.slots
    for first in range(0, slots, highway.SLOTS_PER_DAY):
        yield from _rows_of_columns(road.rows(first, first + highway.SLOTS_PER_DAY))


def _rows_of_columns(columns: Mapping[str, npt.NDArray[Any]]) -> Iterator[Entry]:
    names = list(columns)
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield None, dict(zip(names, values, strict=True))


_GENERATORS: dict[str, Callable[[str, Mapping[str, str]], Iterator[Entry]]] = {
    "highway": _highway,
    "nexmark": _nexmark,
    "rfid": _rfid,
}
