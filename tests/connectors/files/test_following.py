"""Growing files: appended lines in files that are rotated, truncated and replaced."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from slicemill import types as t
from slicemill.catalog.catalog import SourceSpec, Stream, TimestampKind
from slicemill.connectors.registry import open_readers
from slicemill.errors import SlicemillError
from slicemill.types import Column, Schema

NUMBERS = Schema((Column("n", t.INT),))


class Followed:
    """Followed folder; the committed offset is plain JSON."""

    def __init__(self, tmp_path: Path, form: str = "json", **options: str) -> None:
        self.folder = tmp_path / "in"
        self.folder.mkdir()
        self.spool = tmp_path / "spool"
        given = {"path": str(self.folder), "follow": "true", **options}
        source = SourceSpec(format=form, options=tuple(given.items()))
        self.stream = Stream("s", NUMBERS, TimestampKind.LATENT, None, 0, None, source)
        self.offset: Any = None
        self.reader = self.opened()

    def opened(self) -> Any:
        readers = open_readers(self.stream, ["n"], Path(), self.spool, lambda: None, lambda: 0)
        assert readers is not None
        return readers["0"]

    def append(self, name: str, text: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(text)

    def numbers(self, limit: int = 1000) -> list[int]:
        """Read new rows; every second read uses a new reader."""
        batch = self.reader.read(self.offset, limit)
        self.offset = json.loads(json.dumps(batch.offset))
        self.reader.close()
        self.reader = self.opened()
        assert not batch.ended
        assert batch.errors is None, batch.errors
        return [] if batch.table is None else batch.table.column("n").to_pylist()


def line(number: int) -> str:
    return f'{{"n": {number}}}\n'


def test_an_appended_line_is_read_when_its_end_is_written(tmp_path: Path) -> None:
    source = Followed(tmp_path)
    source.append("a.json", line(1) + '{"n": ')
    assert source.numbers() == [1]
    assert source.numbers() == []
    source.append("a.json", "2}\n" + line(3))
    source.append("b.json", line(9))
    assert source.numbers() == [2, 3, 9]
    assert source.numbers() == []


def test_a_rotated_log_is_read_on_under_both_names(tmp_path: Path) -> None:
    source = Followed(tmp_path)
    source.append("a.json", line(1))
    assert source.numbers() == [1]
    source.append("a.json", line(2))  # not read before the rotation
    (source.folder / "a.json").rename(source.folder / "a.json.1")
    source.append("a.json", line(3))
    assert sorted(source.numbers()) == [2, 3]
    source.append("a.json", line(4))
    assert source.numbers() == [4]


@pytest.mark.parametrize("longer", [False, True])
def test_a_truncated_file_is_read_from_its_start(tmp_path: Path, longer: bool) -> None:
    """Also if the file is longer than before at the next poll, because its first bytes differ."""
    source = Followed(tmp_path)
    source.append("a.json", line(1) + line(2))
    assert source.numbers() == [1, 2]
    os.truncate(source.folder / "a.json", 0)
    source.append("a.json", line(3) * (5 if longer else 1))
    assert source.numbers() == [3] * (5 if longer else 1)


def test_a_read_returns_at_most_the_limit_of_rows_and_the_next_read_continues(tmp_path: Path) -> None:
    source = Followed(tmp_path)
    source.append("a.json", "".join(line(n) for n in range(10)))
    found: list[int] = []
    for _ in range(20):
        found += source.numbers(limit=3)
    assert found == list(range(10))


def test_a_csv_file_is_read_when_its_header_is_complete(tmp_path: Path) -> None:
    source = Followed(tmp_path, "csv", header="true")
    source.append("a.csv", "n")
    assert source.numbers() == []
    source.append("a.csv", "\n1\n")
    assert source.numbers() == [1]
    source.append("a.csv", "2\n")
    assert source.numbers() == [2]


def test_a_compressed_or_parquet_file_cannot_be_followed(tmp_path: Path) -> None:
    source = Followed(tmp_path)
    source.append("a.json.gz", line(1))
    with pytest.raises(SlicemillError, match=r"a\.json\.gz is compressed"):
        source.reader.read(None, 10)
    parquet = SourceSpec(format="parquet", options=(("path", str(source.folder)), ("follow", "true")))
    stream = Stream("s", NUMBERS, TimestampKind.LATENT, None, 0, None, parquet)
    with pytest.raises(SlicemillError, match="parquet files have no option follow"):
        open_readers(stream, ["n"], Path(), source.spool, lambda: None, lambda: 0)
