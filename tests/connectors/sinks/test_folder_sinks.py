"""Folder sinks: after a crash at any step and the next delivery, a folder has every row once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.sinks.logs import (
    EVERY_TYPE,
    NOTHING,
    NUMBERS,
    ONE_OF_EACH,
    append,
    home_with,
    make_anew,
    more_numbers,
    numbers_home,
    open_home,
)
from slicemill.connectors.sinks.delivery import SinkRunner
from slicemill.connectors.sinks.registry import open_sink
from slicemill.storage.filesystem import LOCAL, FileSystem
from slicemill.storage.home import Durability, Home
from slicemill.types import Timed
from storage.faulty_files import Crashed, crashes_of

Read = Callable[[Path], list[dict[str, object]]]


def read_json(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_parquet(path: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.read_table(path).to_pylist()
    return rows


def read_arrow(path: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pa.ipc.open_file(path).read_all().to_pylist()
    return rows


FORMATS = pytest.mark.parametrize(
    ("scheme", "read"), [("json", read_json), ("parquet", read_parquet), ("arrow", read_arrow)]
)


def delivered(folder: Path, read: Read) -> list[object]:
    """Return the values in the folder, in order of the file names."""
    return [row["n"] for path in sorted(folder.glob("[!_]*")) for row in read(path)]


def deliver(home: Home, url: str, files: FileSystem = LOCAL) -> list[str]:
    problems: list[str] = []
    sink = open_sink(url, "q", NUMBERS, folder=home.folder, files=files, durable=home.durable)
    with SinkRunner(home, report=problems.append, files=files) as runner:
        runner.add("q", sink)
        runner.deliver_new()
    return problems


@FORMATS
def test_a_folder_has_all_rows_once_in_files_named_by_epochs(tmp_path: Path, scheme: str, read: Read) -> None:
    home = numbers_home(tmp_path)
    assert deliver(home, f"{scheme}:out") == []
    more_numbers(home, 6)
    deliver(home, f"{scheme}:out")
    deliver(home, f"{scheme}:out")
    assert delivered(tmp_path / "out", read) == list(range(7))
    stems = [path.stem for path in sorted((tmp_path / "out").glob("[!_]*"))]
    assert stems == ["000000000001-000000000004", "000000000006-000000000006"]


@pytest.mark.parametrize(
    ("scheme", "read", "durability"),
    [
        ("json", read_json, "process"),
        ("json", read_json, "machine"),
        ("parquet", read_parquet, "process"),
        ("arrow", read_arrow, "process"),
    ],
)
def test_every_row_is_in_the_folder_once_after_a_crash_at_any_step(
    tmp_path: Path, scheme: str, read: Read, durability: Durability
) -> None:
    for number, files in enumerate(crashes_of(LOCAL)):
        numbers_home(tmp_path / str(number)).close()
        home = open_home(tmp_path / str(number), durability)
        with suppress(Crashed):
            deliver(home, f"{scheme}:out", files)
        more_numbers(home, 6, 7)
        with suppress(Crashed):
            deliver(home, f"{scheme}:out", files)
        more_numbers(home, 8)
        home.close()
        assert deliver(open_home(home.folder), f"{scheme}:out") == []
        assert delivered(home.folder / "out", read) == list(range(9)), (files.mode, number)


def test_rows_that_a_killed_process_has_not_delivered_are_delivered_once(tmp_path: Path) -> None:
    numbers_home(tmp_path).close()
    program = f"""
import os, signal
from pathlib import Path
from slicemill.storage.home import Home
from slicemill.connectors.sinks.sink import SinkCursor
from slicemill.connectors.sinks.registry import open_sink
from slicemill.connectors.sinks.delivery import SinkRunner
home = Home(Path({str(tmp_path)!r}))
home.open()
runner = SinkRunner(home)
runner.add("q", open_sink("json:out", "q", home.logs["q"].schema, folder=home.folder))
SinkCursor.advance = lambda self, epoch: os.kill(os.getpid(), signal.SIGKILL)
runner.deliver_new()
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert killed.returncode == -9
    assert delivered(tmp_path / "out", read_json) == list(range(6))
    home = open_home(tmp_path)
    more_numbers(home, 6)
    assert deliver(home, "json:out") == []
    assert delivered(tmp_path / "out", read_json) == list(range(7))


@FORMATS
def test_values_of_every_type_survive_a_round_trip(tmp_path: Path, scheme: str, read: Read) -> None:
    home = home_with(tmp_path, "q", EVERY_TYPE)
    append(home, [Timed(5, ONE_OF_EACH), Timed(6, NOTHING)])
    with SinkRunner(home) as runner:
        runner.add("q", open_sink(f"{scheme}:out", "q", EVERY_TYPE, folder=tmp_path))
        runner.deliver_new()
    (path,) = (tmp_path / "out").glob("[!_]*")
    first, second = read(path)
    assert set(second.values()) - {second["_ts"]} == {None}
    if scheme != "json":
        log = home.logs["q"]
        stored = log.read(log.epochs()[0]).drop_columns(["_ts", "_seq", "_arr"]).to_pylist()
        assert [{name: row[name] for name in stored[0]} for row in (first, second)] == stored
        return
    assert first == {
        "_ts": "1970-01-01T00:00:00.000005Z",
        "flag": True,
        "small": 7,
        "big": 2**60,
        "ratio": 2.5,
        "price": "12.50",
        "item ID": 'Zürich "7"\t\\N\n',
        "code": "abc",
        "raw": "AP8=",
        "at": "1970-01-01T00:00:01.500000Z",
        "day": "2022-01-08",
        "age": 90_000_000,
        "term": 14,
        "valid": {"begin": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:00:02Z"},
    }


def test_a_folder_of_another_home_directory_or_query_is_rejected(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert deliver(numbers_home(tmp_path / "a"), f"json:{folder}") == []
    (problem,) = deliver(numbers_home(tmp_path / "b"), f"json:{folder}")
    assert "has the results of another query or home" in problem
    assert delivered(folder, read_json) == list(range(6))


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    (problem,) = deliver(numbers_home(tmp_path / "home"), f"json:{tmp_path / 'out'}")
    assert "is a file; a sink needs a folder" in problem


def test_deleted_files_are_not_delivered_again(tmp_path: Path) -> None:
    home = numbers_home(tmp_path)
    deliver(home, "json:out")
    for path in (tmp_path / "out").glob("[!_]*"):
        path.unlink()
    more_numbers(home, 6)
    deliver(home, "json:out")
    assert delivered(tmp_path / "out", read_json) == [6]


def test_a_home_directory_older_than_its_sink_is_reported(tmp_path: Path) -> None:
    home = numbers_home(tmp_path)
    deliver(home, "json:out")
    (tmp_path / "out" / "000000000006-000000000009.jsonl").touch()
    (problem,) = deliver(home, "json:out")
    assert "the sink has epoch 9, but the results end with 4" in problem


def test_the_folder_of_a_dropped_query_is_not_reused_for_a_query_of_the_same_name(tmp_path: Path) -> None:
    home, problems = numbers_home(tmp_path), []
    with SinkRunner(home, report=problems.append) as runner:
        runner.add("q", open_sink("json:out", "q", NUMBERS, folder=tmp_path))
        runner.deliver_new()
        runner.forget("q")
        make_anew(home)
        more_numbers(home, 6)
        runner.add("q", open_sink("json:out", "q", NUMBERS, folder=tmp_path))
        runner.deliver_new()
    assert "has the results of another query or home" in problems[0]
    assert deliver(home, "json:new") == []
    assert delivered(tmp_path / "new", read_json) == [6]


def test_a_sink_continues_after_its_query_was_recreated_while_the_sink_was_closed(tmp_path: Path) -> None:
    home = numbers_home(tmp_path)
    deliver(home, "json:out")
    make_anew(home)
    assert deliver(home, "json:out") == []
    more_numbers(home, 6)
    assert deliver(home, "json:out") == []
    assert delivered(tmp_path / "out", read_json) == list(range(7))
