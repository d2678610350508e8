"""Another process reads results as they are committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from slicemill.columns.arrow_schema import with_system_columns
from slicemill.connectors.follow import Follower, follow
from slicemill.storage.changes import Appended, Change
from slicemill.storage.home import Home
from slicemill.storage.segments import SegmentWriter

Opened: TypeAlias = Callable[..., Home]
COLUMNS = pa.schema([("n", pa.int64())])


class Writer:
    """Home directory in which queries get rows."""

    def __init__(self, home: Home, *queries: str) -> None:
        self.home = home
        self.home.commit(Change(created=dict.fromkeys(queries, COLUMNS)))
        self._writers = {name: SegmentWriter(self.home.logs[name].folder, "w") for name in queries}

    def add(self, query: str, *numbers: int) -> int:
        rows = pa.table([pa.array(numbers, pa.int64())] * 4, with_system_columns(COLUMNS))
        extent = self._writers[query].append(rows)
        added = Appended([extent], min(numbers), max(numbers), arrival_us=0)
        return self.home.commit(Change(logs={query: added}))


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Yield a function that opens home directories, which are closed after the test."""
    with ExitStack() as homes:

        def open_home(folder: Path, **options: Any) -> Home:
            home = Home(folder, **options)
            homes.callback(home.close)
            home.open()
            return home

        yield open_home


def numbers(rows: pa.Table) -> list[int]:
    found: list[int] = rows.column("n").to_pylist()
    return found


def test_a_follower_gets_each_commit_of_its_queries_once(tmp_path: Path, opened: Opened) -> None:
    writer = Writer(opened(tmp_path), "a", "b", "c")
    follower = Follower(tmp_path, ["a", "b"])
    assert follower.poll() == []
    first, second = writer.add("b", 1, 2), writer.add("a", 3)
    writer.add("c", 4)
    assert [(s.query, s.epoch, numbers(s.rows)) for s in follower.poll()] == [
        ("a", second, [3]),
        ("b", first, [1, 2]),
    ]
    assert follower.poll() == []
    writer.add("a", 5)
    assert [numbers(s.rows) for s in follower.poll()] == [[5]]


def test_a_follower_can_start_before_the_home_directory_and_the_query_exist(
    tmp_path: Path, opened: Opened
) -> None:
    follower = Follower(tmp_path / "home", ["a"])
    assert follower.poll() == []
    (tmp_path / "home").mkdir()
    assert follower.poll() == []
    Writer(opened(tmp_path / "home"), "a").add("a", 1)
    assert [numbers(s.rows) for s in follower.poll()] == [[1]]


def test_a_stopped_follower_first_returns_rows_committed_before_the_stop(
    tmp_path: Path, opened: Opened
) -> None:
    writer = Writer(opened(tmp_path), "a")
    stop = False

    def wait(_: float) -> None:
        nonlocal stop
        assert not stop, "it must not wait again"
        writer.add("a", 2)
        stop = True

    epoch = writer.add("a", 1)
    seen = [(at, numbers(rows)) for at, rows in follow(tmp_path, "a", stopped=lambda: stop, wait=wait)]
    assert seen == [(epoch, [1]), (epoch + 1, [2])]


def test_a_follower_continues_after_a_given_epoch(tmp_path: Path, opened: Opened) -> None:
    writer = Writer(opened(tmp_path), "a")
    first = writer.add("a", 1)
    writer.add("a", 2)
    seen = [numbers(rows) for _, rows in follow(tmp_path, "a", first, stopped=lambda: True)]
    assert seen == [[2]]


def test_a_follower_follows_the_journal_into_new_files(tmp_path: Path, opened: Opened) -> None:
    writer = Writer(opened(tmp_path, snapshot_every=(1_000, 2_000), background=False), "a")
    follower, seen = Follower(tmp_path, ["a"]), []
    for number in range(500):
        writer.add("a", number)
        seen += [n for s in follower.poll() for n in numbers(s.rows)]
    assert seen == list(range(500))
    assert not (tmp_path / "journal" / f"{0:012d}.records").exists()
