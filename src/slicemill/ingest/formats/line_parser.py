"""Parser of CSV or JSON lines: returns rows of a declared schema.

Each line is one row, even if it ends inside a quoted field. Blank lines are skipped. Arrow parses most lines
in bulk (see `csv` and `json`). Unusual lines are parsed one by one by the rules of
`ingest/formats/records.py`, so values, bad rows and reasons are the same as through Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.functions.calendar import BLANKS
from slicemill.ingest.formats.checked import Parsed, WantedColumns, check_rows
from slicemill.ingest.formats.csv import CsvFormat, csv_parts
from slicemill.ingest.formats.json import json_parts
from slicemill.ingest.formats.lines import TextLines
from slicemill.ingest.formats.records import NO_TEXT
from slicemill.kernels.arrays import Bools

JSON, CSV_LINES, EITHER = "json", "csv", "either"

_BLANKS = BLANKS.encode()
_BRACE = b"{"[0]
_IS_BLANK = np.isin(np.arange(256), np.frombuffer(b"\n" + _BLANKS, np.uint8))


@dataclass(frozen=True, slots=True)
class LineParser:
    """Parser of lines in one format (`json`, `csv` or `either`).

    `csv` is the format of CSV lines.
    """

    wanted: WantedColumns
    form: str
    csv: CsvFormat

    def __post_init__(self) -> None:
        if self.form not in (JSON, CSV_LINES, EITHER):
            raise SlicemillError(f"lines are {JSON}, {CSV_LINES} or {EITHER}, not {self.form!r}")

    def parse(self, lines: TextLines) -> Parsed:
        filled, objects = _first_bytes(lines)
        broken = dict.fromkeys(_no_texts(lines), NO_TEXT)
        if broken:
            filled[list(broken)] = False
        is_json = {JSON: filled, CSV_LINES: np.zeros_like(filled)}.get(self.form, filled & objects)
        parts = json_parts(lines, np.flatnonzero(is_json), self.wanted, broken)
        parts += csv_parts(lines, np.flatnonzero(filled & ~is_json), self.wanted, self.csv, broken)
        return check_rows(parts, broken, self.wanted, lines.text)


def _first_bytes(lines: TextLines) -> tuple[Bools, Bools]:
    """Return two masks of lines: non-blank lines, and lines that begin with a brace."""
    data = np.frombuffer(lines.data, np.uint8)
    first = data[lines.edges[:-1]]
    filled, objects = ~_IS_BLANK[first], first == _BRACE
    for number in np.flatnonzero(~filled).tolist():
        rest = lines.line(number).lstrip(_BLANKS)
        filled[number], objects[number] = bool(rest), rest.startswith(b"{")
    return filled, objects


def _no_texts(lines: TextLines) -> list[int]:
    """Return the numbers of lines that are not UTF-8."""
    if lines.data.isascii():
        return []
    try:
        lines.array(pa.large_string()).validate(full=True)
        return []
    except pa.ArrowInvalid:
        offsets = np.flatnonzero(np.frombuffer(lines.data, np.uint8) > 127)
        return [number for number in lines.at(offsets).tolist() if not _is_text(lines.line(number))]


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
