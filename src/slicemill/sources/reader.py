"""Opening a finite source: files of CSV, JSON lines or Parquet, and generators, as rows of a declared schema.

A row that does not fit its schema is not lost: it comes out as a BadRow with the reason.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pyarrow.parquet as parquet

from slicemill.errors import SlicemillError
from slicemill.esl.catalog import SourceSpec
from slicemill.esl.types import Schema
from slicemill.sources import nexmark
from slicemill.sources.values import BadValueError, converter

Row = tuple[object, ...]
Record = Mapping[str, object]

_GENERATED_EVENTS = 100_000
_GENERATED_PER_CHUNK = 10_000


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be read: as it came, and why."""

    raw: str
    reason: str


def read_rows(spec: SourceSpec, schema: Schema, folder: Path = Path()) -> Iterator[Row | BadRow]:
    """The rows of a source that ends by itself; paths are taken from `folder`."""
    convert = _row_converter(schema)
    return (
        convert(record) if not isinstance(record, BadRow) else record for record in _records(spec, folder)
    )


def _row_converter(schema: Schema) -> Callable[[Record], Row | BadRow]:
    columns = [(column.name.lower(), column.name, converter(column.type)) for column in schema]

    def convert(record: Record) -> Row | BadRow:
        by_name = {str(key).lower(): value for key, value in record.items()}
        values: list[object] = []
        for key, name, to_value in columns:
            try:
                values.append(to_value(by_name.get(key)))
            except BadValueError as problem:
                return BadRow(json.dumps(dict(record), default=str), f"column {name}: {problem}")
        return tuple(values)

    return convert


def _records(spec: SourceSpec, folder: Path) -> Iterator[Record | BadRow]:
    options = dict(spec.options)
    if spec.format is not None:
        given = options.pop("path", None)
        if given is None:
            raise SlicemillError(f"USING {spec.format} needs OPTIONS (path '…') to run without Spark")
        return _files(spec.format.lower(), folder / given, options)
    if spec.url is None:
        raise SlicemillError("this stream has no SOURCE, so there is nothing to read")
    url = urlsplit(spec.url)
    if url.scheme == "nexmark":
        return _nexmark(url.netloc or url.path.strip("/"), dict(parse_qsl(url.query)))
    if url.scheme in ("", "file"):
        path = folder / (url.path if url.scheme else spec.url)
        return _files(path.suffix.lstrip(".").lower(), path, options)
    raise SlicemillError(
        f"cannot read {spec.url} without Spark: files (csv, json, parquet) and nexmark:// can be read"
    )


def _files(form: str, path: Path, options: Mapping[str, str]) -> Iterator[Record | BadRow]:
    read = _FORMATS.get(form)
    if read is None:
        raise SlicemillError(f"cannot read {form or path} without Spark: csv, json and parquet can be read")
    if not path.exists():
        raise SlicemillError(f"there is no file {path}")
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    for file in files:
        if not file.name.startswith(("_", ".")):
            yield from read(file, options)


def _csv(file: Path, options: Mapping[str, str]) -> Iterator[Record | BadRow]:
    separator = options.get("sep", options.get("delimiter", ","))
    with file.open(newline="", encoding="utf-8") as lines:
        if options.get("header", "false").lower() == "true":
            rows: Iterable[Record] = csv.DictReader(lines, delimiter=separator)
        else:
            raise SlicemillError(f"{file} needs a first line with column names: add header true to OPTIONS")
        for row in rows:
            yield {key: (value if value != "" else None) for key, value in row.items() if key is not None}


def _json(file: Path, options: Mapping[str, str]) -> Iterator[Record | BadRow]:
    del options
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as problem:
                yield BadRow(line.rstrip("\n"), f"this is no JSON: {problem}")
                continue
            yield record if isinstance(record, dict) else BadRow(line.rstrip("\n"), "this is no JSON object")


def _parquet(file: Path, options: Mapping[str, str]) -> Iterator[Record | BadRow]:
    del options
    with parquet.ParquetFile(file) as data:
        for batch in data.iter_batches():
            yield from batch.to_pylist()


_FORMATS: dict[str, Callable[[Path, Mapping[str, str]], Iterator[Record | BadRow]]] = {
    "csv": _csv,
    "json": _json,
    "jsonl": _json,
    "parquet": _parquet,
}


def _nexmark(stream: str, options: Mapping[str, str]) -> Iterator[Record]:
    known = {"events": _GENERATED_EVENTS, "seed": 1, "rate": 10_000}
    unknown = set(options) - set(known)
    if unknown:
        raise SlicemillError(f"nexmark:// has no option {', '.join(unknown)}; it has {', '.join(known)}")
    try:
        events, seed = (int(options.get(key, known[key])) for key in ("events", "seed"))
        rate = float(options.get("rate", known["rate"]))
    except ValueError as problem:
        raise SlicemillError(f"nexmark:// takes numbers: {problem}") from None
    for first in range(0, events, _GENERATED_PER_CHUNK):
        chunk = nexmark.columns(
            stream, first, min(first + _GENERATED_PER_CHUNK, events), seed=seed, rate=rate
        )
        names = list(chunk)
        for values in zip(*(column.tolist() for column in chunk.values()), strict=True):
            yield dict(zip(names, values, strict=True))
