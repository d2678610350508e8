"""Files of a folder: each is read once, in order, in batches of any size, across restarts."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill import types as t
from slicemill.catalog.catalog import SourceSpec, Stream, TimestampKind
from slicemill.connectors.files import listing as files_listing
from slicemill.connectors.files import reader as files_reader
from slicemill.connectors.files.listing import glob_regex, listing_of
from slicemill.connectors.files.reader import FilesReader
from slicemill.connectors.registry import open_readers
from slicemill.errors import SlicemillError
from slicemill.ingest.reader import SourceBatch
from slicemill.types import Column, Schema

NUMBERS = Schema((Column("n", t.INT), Column("name", t.VARCHAR)))
ALL = 1_000_000


class Source:
    """Declared folder with one reader at a time; the committed offset is plain JSON."""

    def __init__(self, tmp_path: Path, form: str = "csv", **options: object) -> None:
        self.folder = tmp_path / "in"
        self.folder.mkdir(exist_ok=True)
        self.spool = tmp_path / "spool"
        given = {"path": self.folder, **options}
        source = SourceSpec(format=form, options=tuple((key, str(value)) for key, value in given.items()))
        self.stream = Stream("s", NUMBERS, TimestampKind.LATENT, None, 0, None, source)
        self.offset: Any = None
        self.now_us = 100
        self.reader = self.opened()

    def opened(self) -> FilesReader:
        names = self.stream.schema.names
        readers = open_readers(self.stream, names, Path(), self.spool, lambda: None, lambda: self.now_us)
        assert readers is not None
        reader = readers["0"]
        assert isinstance(reader, FilesReader)
        return reader

    def restart(self) -> None:
        self.reader.close()
        self.reader = self.opened()

    def put(self, name: str, content: str | bytes, mtime_s: float = 1_000.0) -> Path:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        os.utime(path, (mtime_s, mtime_s))
        return path

    def read(self, limit: int = ALL, commit: bool = True) -> SourceBatch:
        batch = self.reader.read(self.offset, limit)
        if commit:
            self.offset = json.loads(json.dumps(batch.offset))
            self.reader.commit(self.offset)
        return batch

    def numbers(self, limit: int = ALL) -> list[int]:
        """Read all rows, in batches of at most so many rows."""
        found: list[int] = []
        while True:
            batch = self.read(limit)
            found += numbers_of(batch)
            if not batch.more:
                return found


def numbers_of(batch: SourceBatch) -> list[int]:
    return [] if batch.table is None else batch.table["n"].to_pylist()


def errors_of(batch: SourceBatch) -> list[tuple[str, str]]:
    return [] if batch.errors is None else [(e["raw"], e["reason"]) for e in batch.errors.to_pylist()]


@pytest.fixture(autouse=True)
def unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    """List folders at every poll, because tests are faster than the clock of a file system."""
    monkeypatch.setattr(files_listing, "_SETTLED_NS", 1 << 60)


def test_files_are_read_by_age_and_then_by_name(tmp_path: Path) -> None:
    source = Source(tmp_path)
    for name, number, age in (("b", 3, 2.0), ("z", 1, 1.0), ("c", 4, 2.0), ("a", 2, 2.0), ("d", 5, 2.5)):
        source.put(f"{name}.csv", f"{number},x\n", age)
    assert source.numbers() == [1, 2, 3, 4, 5]
    source.put("0.csv", "6,x\n", 2.0)  # as old as files that are already read
    source.put("e.csv", "7,x\n", 0.5)  # moved into the folder long after it was written
    assert source.numbers() == [7, 6]
    assert source.numbers() == []


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_row_is_read_once_in_order_with_any_limit_and_restart(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    form = data.draw(st.sampled_from(["csv", "json", "parquet", "csv.gz"]))
    source = Source(tmp_path_factory.mktemp("files"), form.partition(".")[0])
    found: list[int] = []
    expected: list[int] = []
    for turn in range(data.draw(st.integers(1, 4))):
        sizes = data.draw(st.lists(st.integers(0, 12), max_size=5))
        for number, size in enumerate(sizes):
            rows = list(range(len(expected), len(expected) + size))
            expected += rows
            write_numbers(source, f"{turn}-{number}.{form}", form, rows, turn)
        more = True
        steps = iter(data.draw(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=10)))
        while more:
            fails, restarts = next(steps, (False, False))
            if restarts:
                source.restart()
            batch = source.read(data.draw(st.integers(1, 9)), commit=not fails)
            if not fails:
                found += numbers_of(batch)
                more = batch.more
    assert found == expected


def write_numbers(source: Source, name: str, form: str, rows: Sequence[int], age: float) -> None:
    if form == "parquet":
        table = pa.table({"n": pa.array(rows, pa.int32()), "name": ["x"] * len(rows)})
        parquet.write_table(table, source.folder / name, row_group_size=5)
        os.utime(source.folder / name, (age, age))
        return
    line = '{{"n": {0}, "name": "x"}}\n' if form == "json" else "{0},x\n"
    text = "".join(line.format(n) for n in rows).encode()
    source.put(name, gzip.compress(text) if form == "csv.gz" else text, age)


def test_a_file_is_not_read_again_after_a_touch_or_a_change(tmp_path: Path) -> None:
    source = Source(tmp_path)
    path = source.put("a.csv", "1,x\n")
    assert source.numbers() == [1]
    source.put("a.csv", "1,x\n2,x\n", 5_000.0)
    path.touch()
    source.restart()
    assert source.numbers() == []


def test_temporary_file_names_and_subfolders_are_skipped(tmp_path: Path) -> None:
    source = Source(tmp_path)
    for name in ("_1.csv", ".2.csv", "3.csv._COPYING_"):
        source.put(name, "1,x\n")
    (source.folder / "inside").mkdir()
    (source.folder / "inside" / "4.csv").write_text("4,x\n")
    source.put("5.csv", "")
    assert source.numbers() == []
    (source.folder / "_1.csv").rename(source.folder / "1.csv")
    source.put("5.csv", "5,x\n")
    assert source.numbers() == [1, 5]


def test_the_offset_stays_small_because_a_ledger_has_the_names_of_read_files(tmp_path: Path) -> None:
    source = Source(tmp_path, maxFilesPerTrigger=10)
    for number in range(300):
        source.put(f"{number:03}.csv", f"{number},x\n")
    sizes = []
    for turn in range(30):
        source.read()
        sizes.append(len(json.dumps(source.offset)))
        if turn % 7 == 0:
            source.restart()
    assert max(sizes) < 1_200
    assert source.offset["seen"] > 0
    source.restart()
    assert source.numbers() == []
    (source.spool / "read-files").unlink()
    source.restart()
    with pytest.raises(SlicemillError, match="has lost names of files that were read"):
        source.read()


def test_an_uncommitted_batch_is_read_again(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.put("a.csv", "1,x\n2,x\n3,x\n")
    assert numbers_of(source.read(2, commit=False)) == [1, 2]
    assert numbers_of(source.read(2)) == [1, 2]
    assert numbers_of(source.read(2, commit=False)) == [3]
    assert source.numbers() == [3]


def test_the_arrival_time_of_rows_is_the_time_when_their_file_was_found(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.put("a.csv", "1,x\n2,x\n")
    source.now_us = 7
    first = source.read(1)
    source.now_us = 9
    assert (first.arrival_us, source.read(1).arrival_us) == (7, 7)


def test_an_idle_folder_is_polled_with_growing_delays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Listings take no time here, because a slow listing would delay the next one.
    monkeypatch.setattr(files_listing.time, "monotonic", lambda: 0.0)
    source = Source(tmp_path)
    assert [source.read().again_us for _ in range(4)] == [50_000, 100_000, 200_000, 200_000]
    source.put("a.csv", "1,x\n2,x\n")
    assert [source.read(1).again_us for _ in range(2)] == [0, 0]
    assert [source.read().again_us for _ in range(2)] == [50_000, 100_000]


def test_an_unchanged_folder_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_listing, "_SETTLED_NS", -(1 << 60))
    listed: list[Path] = []
    scandir = os.scandir
    monkeypatch.setattr(files_listing.os, "scandir", lambda path: listed.append(path) or scandir(path))
    source = Source(tmp_path)
    source.put("a.csv", "1,x\n")
    listed.clear()
    assert source.numbers() == [1]
    assert source.numbers() == source.numbers() == []
    assert len(listed) == 1
    source.put("b.csv", "2,x\n")
    os.utime(source.folder, (9_000.0, 9_000.0))
    assert source.numbers() == [2] and len(listed) == 2


# -- Headers ----------------------------------------------------------------------------------------------


def test_each_file_has_its_own_header(tmp_path: Path) -> None:
    source = Source(tmp_path, header="true")
    source.put("1.csv", "n,name\n1,a\nn,name\n2,b\n", 1.0)
    source.put("2.csv", "\ufeff\n NAME , N \nc,3\n", 2.0)
    source.put("3.csv", "\n\n", 3.0)
    batch = source.read()
    assert batch.table is not None and batch.errors is None
    assert batch.table.to_pylist() == [{"n": 1, "name": "a"}, {"n": 2, "name": "b"}, {"n": 3, "name": "c"}]


def test_missing_and_undeclared_columns_of_a_header_are_reported(tmp_path: Path) -> None:
    source = Source(tmp_path, header="true")
    source.put("1.csv", "n,name,extra\n1,a,x\n", 1.0)
    source.put("2.csv", "n\n2\n", 2.0)
    source.put("3.csv", "n\n3\n", 3.0)
    source.put("4.csv", "n,name,other\n4,b,x\nbad\n", 4.0)
    source.put("5.csv", "Other,name,n\nx,c,5\n", 5.0)
    source.put("6.csv", "Other,name,n\nx,c,6\n", 6.0)
    errors: list[tuple[str, str]] = []
    rows: list[int] = []
    more = True
    while more:
        batch = source.read(1)
        source.restart()
        errors += errors_of(batch)
        rows += numbers_of(batch)
        more = batch.more
    assert rows == [1, 2, 3, 4, 5, 6]
    assert errors == [
        ("n,name,extra", "extra is not declared and left out"),
        ("n", "2.csv has no column name: it is NULL in its rows"),
        ("n", "3.csv has no column name: it is NULL in its rows"),
        ("n,name,other", "other is not declared and left out"),
        ("bad", "this row does not have 3 fields"),
        ("Other,name,n", "Other is not declared and left out"),
    ]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_values_go_to_the_columns_named_in_the_header_of_their_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Each file has some columns in any order and case; a value names its column."""
    source = Source(tmp_path_factory.mktemp("csv"), header="true")
    spellings = {"n": ["n", "N"], "name": ["name", "NAME", "Name"], "other": ["other"]}
    expected = []
    for number in range(data.draw(st.integers(1, 4))):
        columns = data.draw(st.permutations(sorted(spellings)))[: data.draw(st.integers(1, 3))]
        header = [data.draw(st.sampled_from(spellings[column])) for column in columns]
        values = {"n": str(number), "name": f"name{number}", "other": "x"}
        lines = [header, [values[column] for column in columns]]
        source.put(f"{number}.csv", "".join(f"{','.join(line)}\n" for line in lines), float(number + 1))
        expected.append(
            {"n": number if "n" in columns else None, "name": values["name"] if "name" in columns else None}
        )
    batch = source.read()
    assert batch.table is not None and batch.table.to_pylist() == expected


# -- Kinds of files and paths -----------------------------------------------------------------------------


def test_compressed_files_are_resumed_inside_a_file_after_a_restart(tmp_path: Path) -> None:
    source = Source(tmp_path)
    text = "".join(f"{n},x\n" for n in range(20_000)).encode()
    source.put("a.csv.gz", gzip.compress(text), 1.0)
    source.put("b.csv.bz2", bz2.compress(b"20000,x\n"), 2.0)
    found = numbers_of(source.read(7_000))
    source.restart()
    found += source.numbers(9_000)
    assert found == list(range(20_001))


def test_a_source_can_be_one_file_a_pattern_or_a_folder_with_a_name_filter(tmp_path: Path) -> None:
    for name in ("a/1.csv", "a/2.txt", "b/3.csv", "c/4.csv"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.stem},x\n")
    folder = tmp_path / "in"
    assert Source(tmp_path, path=folder / "a" / "1.csv").numbers() == [1]
    assert sorted(Source(tmp_path, path=folder / "[ab]" / "*.csv").numbers()) == [1, 3]
    assert sorted(Source(tmp_path, path=folder / "{a,c}").numbers()) == [1, 2, 4]
    assert Source(tmp_path, path=folder / "a", pathGlobFilter="*.txt").numbers() == [2]
    source = Source(tmp_path, path=folder / "*" / "9*.csv")
    assert source.numbers() == []
    (folder / "c" / "9.csv").write_text("9,x\n")
    assert source.numbers() == [9]


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("a*.csv", ["a.csv", "ab.csv"], ["b.csv"]),
        ("[a-c]?", ["a1", "c_"], ["d1", "a"]),
        ("[^a]", ["b"], ["a"]),
        (r"\*x\[", ["*x["], ["ax["]),
        ("{a,b{1,2}}", ["a", "b1", "b2"], ["b", "{a"]),
    ],
)
def test_glob_patterns_match_file_names(pattern: str, names: list[str], others: list[str]) -> None:
    regex = glob_regex(pattern)
    assert all(regex.fullmatch(name) for name in names)
    assert not any(regex.fullmatch(name) for name in others)


def test_an_existing_path_is_not_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "a[1]").mkdir()
    (tmp_path / "a[1]" / "x.csv").write_text("1,x\n")
    assert [found.name for found in listing_of(tmp_path / "a[1]").new(set())] == ["x.csv"]


# -- Errors -----------------------------------------------------------------------------------------------


DAMAGED = {
    "a.parquet": b"PAR1 no more of it",
    "cut.parquet": b"PAR1" + bytes(100),
    "a.csv.gz": b"no gzip at all",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_reported_and_the_next_files_are_read(tmp_path: Path, name: str) -> None:
    form = "parquet" if name.endswith("parquet") else "csv"
    source = Source(tmp_path, form)
    source.put(name, DAMAGED[name], 1.0)
    write_numbers(source, f"b.{form}", form, [1], 2.0)
    batch = source.read()
    assert numbers_of(batch) == [1]
    [(raw, reason)] = errors_of(batch)
    assert raw == name and reason.startswith("this file cannot be read: ")
    source.restart()
    assert source.numbers() == []


def test_rows_before_the_damage_are_read(tmp_path: Path) -> None:
    source = Source(tmp_path)
    whole = gzip.compress("".join(f"{n},x\n" for n in range(100_000)).encode())
    source.put("a.csv.gz", whole[: len(whole) // 2], 1.0)
    source.put("b.csv", "-1,x\n", 2.0)
    numbers: list[int] = []
    errors: list[tuple[str, str]] = []
    more = True
    while more:
        batch = source.read(10_000)
        numbers += numbers_of(batch)
        errors += errors_of(batch)
        more = batch.more
    assert numbers[-1] == -1 and numbers[:-1] == list(range(len(numbers) - 1)) and len(numbers) > 10_000
    [(raw, reason)] = errors
    assert raw == "a.csv.gz" and reason.startswith("this file cannot be read any further: ")


def test_a_recent_incomplete_file_is_retried(tmp_path: Path) -> None:
    source = Source(tmp_path, "parquet")
    path = source.put("a.parquet", b"PAR1 no more of it", time.time() + 60)
    for _ in range(2):
        with pytest.raises(SlicemillError, match=f"cannot read {path}"):
            source.read()
    write_numbers(source, "a.parquet", "parquet", [1], 2.0)
    assert source.numbers() == [1]


def test_an_unreadable_file_stops_its_stream_until_it_is_readable(tmp_path: Path) -> None:
    source = Source(tmp_path)
    path = source.put("a.csv", "1,x\n2,x\n", 1.0)
    assert numbers_of(source.read(1)) == [1]
    source.restart()
    path.unlink()
    path.symlink_to(path)
    for _ in range(2):
        with pytest.raises(SlicemillError, match="reading continues when the file is readable or removed"):
            source.read()
    path.unlink()
    source.put("a.csv", "1,x\n2,x\n", 1.0)
    assert source.numbers() == [2]


def test_a_file_deleted_during_the_read_is_reported(tmp_path: Path) -> None:
    source = Source(tmp_path)
    path = source.put("a.csv", "1,x\n2,x\n", 1.0)
    source.put("b.csv", "3,x\n", 2.0)
    assert numbers_of(source.read(1)) == [1]
    path.unlink()
    batch = source.read()
    assert numbers_of(batch) == [3]
    assert errors_of(batch) == [("a.csv", "this file was removed before it was read to its end")]


def test_each_parquet_file_is_read_with_its_own_schema(tmp_path: Path) -> None:
    source = Source(tmp_path, "parquet")
    tables = [
        pa.table({"n": pa.array([1, None], pa.int32()), "name": ["a", None]}),
        pa.table({"name": ["b"], "N": pa.array([2], pa.int64())}),
        pa.table({"n": pa.array([3, 2**40], pa.int64())}),
        pa.table({"n": ["4", "four"], "name": pa.array(["d", "e"]).dictionary_encode()}),
        pa.table({"n": pa.array([], pa.int32()), "name": pa.array([], pa.string())}),
    ]
    for number, table in enumerate(tables):
        path = source.folder / f"{number}.parquet"
        parquet.write_table(table, path)
        os.utime(path, (number, number))
    batch = source.read()
    assert batch.table is not None and batch.table.to_pylist() == [
        {"n": 1, "name": "a"},
        {"n": None, "name": None},
        {"n": 2, "name": "b"},
        {"n": 3, "name": None},
        {"n": 4, "name": "d"},
    ]
    assert errors_of(batch) == [
        ('{"n":1099511627776}', "column n: '1099511627776' is no INT"),
        ('{"n":"four","name":"e"}', "column n: 'four' is no INT"),
    ]


def test_a_column_that_no_file_has_is_an_error(tmp_path: Path) -> None:
    source = Source(tmp_path, "parquet")
    parquet.write_table(pa.table({"n": [1], "other": ["a"]}), source.folder / "a.parquet")
    with pytest.raises(SlicemillError, match="the source has no column name; it has n, other"):
        source.restart()


def test_a_file_with_column_names_that_differ_only_in_case_is_rejected(tmp_path: Path) -> None:
    source = Source(tmp_path, "parquet")
    path = source.folder / "a.parquet"
    parquet.write_table(pa.table({"N": [1], "NAME": ["a"], "Name": ["b"]}), path)
    os.utime(path, (1.0, 1.0))
    [(raw, reason)] = errors_of(source.read())
    assert (raw, reason) == ("a.parquet", "this file cannot be read: it has several columns name: NAME, Name")


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ("csv", {"path": "/no/such/folder"}, "there is no file or folder /no/such/folder"),
        ("csv", {"headr": "true"}, "csv files have no option headr; did you mean header?"),
        ("csv", {"header": "yes"}, "the option header is true or false, not 'yes'"),
        ("csv", {"quote": "''"}, "CSV's option quote is one character"),
        ("csv", {"sep": ""}, "fields cannot be separated by ''"),
        ("csv", {"multiLine": "true"}, "a row is one line"),
        ("json", {"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger is a number of files from 1 on"),
        ("parquet", {"colour": "red"}, "parquet files have no option colour; there are"),
    ],
)
def test_options_are_checked_when_a_source_is_opened(
    tmp_path: Path, form: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(SlicemillError, match=message):
        Source(tmp_path, form, **options)


@pytest.mark.parametrize(
    "source",
    [
        SourceSpec(format="orc", options=(("path", "x"),)),
        SourceSpec(format="csv", options=(("path", "s3://bucket/x"),)),
        SourceSpec(format="csv", options=(("path", "/tmp"), ("encoding", "UTF-16"))),
        SourceSpec(url="rate://"),
        SourceSpec(url="kafka://localhost:9092/bids"),
    ],
)
def test_a_source_that_only_spark_can_read_has_no_reader(tmp_path: Path, source: SourceSpec) -> None:
    stream = Stream("s", NUMBERS, TimestampKind.LATENT, None, 0, None, source)
    assert open_readers(stream, ["n"], Path(), tmp_path, lambda: None, lambda: 0) is None


def test_partition_columns_in_folder_names_are_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "in" / "day=7").mkdir(parents=True)
    options = (("path", str(tmp_path / "in")),)
    stream = Stream(
        "s", NUMBERS, TimestampKind.LATENT, None, 0, None, SourceSpec(format="csv", options=options)
    )
    assert open_readers(stream, ["n"], Path(), tmp_path, lambda: None, lambda: 0) is None


def test_a_stream_without_a_source_has_no_partitions(tmp_path: Path) -> None:
    stream = Stream("s", NUMBERS, TimestampKind.LATENT, None, 0, None, SourceSpec())
    assert open_readers(stream, ["n"], Path(), tmp_path, lambda: None, lambda: 0) == {}


def test_a_file_that_changes_after_it_was_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the reader of the file and a reader that continues from its offset report the change."""
    monkeypatch.setattr(files_reader, "_CHECK_EVERY_S", 0.0)
    source = Source(tmp_path)
    file = source.put("a.csv", "1,a\n")
    first = source.reader.read(None, ALL)
    assert first.warning is None
    with file.open("a") as appended:
        appended.write("2,b\n")
    for reader in (source.reader, source.opened()):
        batch = reader.read(json.loads(json.dumps(first.offset)), ALL)
        assert batch.table is None, "each file is read once"
        assert batch.warning is not None
        assert batch.warning.startswith("a.csv changed after it was read")
        assert "follow 'true'" in batch.warning
