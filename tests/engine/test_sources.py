"""Sources that are wrong in some way: what they bring, what they stop, and what they tell."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from connectors.sender import Sender, eventually
from slicemill.api.mill import Mill
from slicemill.api.status import problems
from slicemill.errors import SlicemillError
from slicemill.runtime.streams import SourceFailed
from slicemill.testing import Clock, inline_pool, open_mill
from support.engine import feed_rows, rows_as_table, turn

SECOND = 1_000_000
HINT = "a number needs its unit: declare the column as TIMESTAMP SECONDS, MILLIS, MICROS or NANOS"


def mill_in(folder: Path, clock: Callable[[], int] | None = None) -> Mill:
    given = {} if clock is None else {"clock": clock}
    return open_mill(home=folder / "home", folder=folder, pool=inline_pool(1), **given)  # type: ignore[arg-type]


def rows(mill: Mill, query: str) -> list[tuple[object, ...]]:
    return [timed.row for timed in mill.queries[query].timed_rows()]


# -- numbers that are times ---------------------------------------------------------------------------------


def csv_numbers(folder: Path) -> str:
    (folder / "in.csv").write_text("1,1700000000\n2,1700000001\n")
    return "USING csv OPTIONS (path 'in.csv')"


def json_numbers(folder: Path) -> str:
    lines = [json.dumps({"n": n, "ts": 1_699_999_999 + n}) for n in (1, 2)]
    (folder / "in.json").write_text("\n".join(lines))
    return "USING json OPTIONS (path 'in.json')"


def parquet_numbers(folder: Path) -> str:
    table = pa.table({"n": [1, 2], "ts": pa.array([1_700_000_000, 1_700_000_001], pa.int64())})
    parquet.write_table(table, folder / "in.parquet")
    return "USING parquet OPTIONS (path 'in.parquet')"


@pytest.mark.parametrize("source", [csv_numbers, json_numbers, parquet_numbers])
def test_a_number_is_no_time_until_its_task_is_declared(
    tmp_path: Path, source: Callable[[Path], str]
) -> None:
    using = source(tmp_path)
    queries = "CREATE QUERY good AS SELECT n, ts FROM {0}; CREATE QUERY bad AS SELECT reason FROM {0}_errors;"
    with mill_in(tmp_path) as mill:
        mill.execute(f"CREATE STREAM s (n int, ts timestamp) ORDER BY ts {using}; {queries.format('s')}")
        mill.drain()
        assert rows(mill, "good") == []
        told = [str(reason) for (reason,) in rows(mill, "bad")]
        assert len(told) == 2 and all(HINT in reason for reason in told)
    # The hint works when followed.
    with open_mill(folder=tmp_path, pool=inline_pool(1)) as mill:
        mill.execute(
            f"CREATE STREAM s (n int, ts timestamp seconds) ORDER BY ts {using}; {queries.format('s')}"
        )
        mill.drain()
        assert rows(mill, "bad") == []
        assert rows(mill, "good") == [(1, 1_700_000_000 * SECOND), (2, 1_700_000_001 * SECOND)]


def test_rows_of_a_program_are_checked_like_those_of_a_source(tmp_path: Path) -> None:
    script = "CREATE QUERY good AS SELECT n, ts FROM s; CREATE QUERY bad AS SELECT reason FROM s_errors;"
    numbers = pa.table({"n": pa.array([1, 2**40]), "ts": pa.array([5, 6], pa.int64())})
    for task, good, bad in (("", 0, 2), (" millis", 1, 1)):
        with open_mill(pool=inline_pool(1)) as mill:
            mill.execute(f"CREATE STREAM s (n int, ts timestamp{task}) ORDER BY ts; {script}")
            mill.feed("s", numbers)
            mill.drain()
            assert rows(mill, "good") == [(1, 5_000)][:good]
            assert len(rows(mill, "bad")) == bad
            with pytest.raises(SlicemillError, match="the source has no column ts; it has n"):
                mill.feed("s", numbers.select(["n"]))


# -- one file, or one source, that cannot be read -----------------------------------------------------------


TWO = """
CREATE STREAM a (n int) USING parquet OPTIONS (path 'a');
CREATE STREAM b (n int) USING csv OPTIONS (path 'b');
CREATE QUERY of_a AS SELECT n FROM a;
CREATE QUERY of_b AS SELECT n FROM b;
CREATE QUERY bad AS SELECT raw, reason FROM a_errors;
"""


def two_folders(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
    (folder / "b" / "1.csv").write_text("7\n")


def test_a_file_of_other_types_or_none_stops_nothing(tmp_path: Path) -> None:
    two_folders(tmp_path)
    parquet.write_table(pa.table({"n": pa.array([1], pa.int32())}), tmp_path / "a" / "1.parquet")
    parquet.write_table(pa.table({"n": pa.array([2, 2**40], pa.int64())}), tmp_path / "a" / "2.parquet")
    (tmp_path / "a" / "3.parquet").write_bytes(b"no Parquet at all")
    parquet.write_table(pa.table({"n": pa.array([4], pa.uint8())}), tmp_path / "a" / "4.parquet")
    for number in range(1, 5):
        os.utime(tmp_path / "a" / f"{number}.parquet", (number, number))
    with mill_in(tmp_path) as mill:
        mill.execute(TWO)
        mill.drain()
        assert rows(mill, "of_a") == [(1,), (2,), (4,)]
        assert rows(mill, "of_b") == [(7,)]
        told = dict(rows(mill, "bad"))
        assert told.pop("3.parquet").startswith("this file cannot be read: ")
        assert told == {'{"n":1099511627776}': "column n: '1099511627776' is no INT"}


def test_a_source_that_fails_stops_only_what_reads_it_and_is_tried_again_ever_less_often(
    tmp_path: Path,
) -> None:
    two_folders(tmp_path)
    link = tmp_path / "a" / "1.parquet"
    parquet.write_table(pa.table({"n": pa.array([1, 2], pa.int32())}), link)
    clock = Clock(10 * SECOND)
    with mill_in(tmp_path, clock) as mill:
        mill.execute(TWO)
        mill.open()
        stream = mill.running.streams["a"]
        reads: list[int] = []
        link.rename(tmp_path / "kept")
        # Written just now, it may not be whole: it is tried again.
        link.write_bytes(b"no Parquet at all")
        os.utime(link, (2**32, 2**32))

        def poll() -> None:
            with mill.dispatcher.paused():
                if stream.wants_read(clock.now):
                    reads.append(clock.now)
                mill.dispatcher._send_reads()
                mill.dispatcher._wait_for_answers()

        for _ in range(1_000):
            poll()
            clock.now += SECOND // 10
        pauses = [(after - before) / SECOND for before, after in pairwise(reads)]
        assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
        assert "no Parquet" not in (stream.error or "") and "cannot read" in (stream.error or "")
        assert problems(mill) == [
            f"a cannot be read: {stream.error}; its queries wait, and it is tried again"
        ]
        assert mill.metrics()["failing_sources"] == {"a": stream.error}
        mill.dispatcher.run_all()
        assert rows(mill, "of_b") == [(7,)]
        with pytest.raises(SourceFailed, match="reading a stopped: cannot read"):
            mill.drain()
        # Somebody has put it right.
        (tmp_path / "kept").replace(link)
        clock.now += 30 * SECOND
        poll()
        assert stream.error is None and mill.metrics()["failing_sources"] == {}
        mill.drain()
        assert rows(mill, "of_a") == [(1,), (2,)]


def test_a_sender_that_is_not_there_is_told_at_once_until_it_is(tmp_path: Path) -> None:
    sender = Sender()
    port = sender.port
    sender.close()
    clock = Clock(10 * SECOND)
    with mill_in(tmp_path, clock) as mill:
        mill.execute(
            f"CREATE STREAM s (n int) SOURCE 'tcp://127.0.0.1:{port}'; CREATE QUERY q AS SELECT n FROM s"
        )
        mill.open()
        turn(mill)
        eventually(lambda: problems(mill) == ["s has no sender: Connection refused; it is tried again"])
        with closing(socket.create_server(("127.0.0.1", port))):
            eventually(lambda: problems(mill) == [])


def test_rows_that_were_handed_over_and_cannot_be_read_are_tried_again_ever_less_often(
    tmp_path: Path,
) -> None:
    clock = Clock(10 * SECOND)
    with mill_in(tmp_path, clock) as mill:
        mill.execute(
            "CREATE STREAM a (n int); CREATE QUERY of_a AS SELECT n FROM a;"
            "CREATE STREAM b (n int); CREATE QUERY of_b AS SELECT n FROM b;"
        )
        mill.open()
        feed_rows(mill, "b", [(7,)])
        mill.feed("a", rows_as_table(mill, "a", [(1,)]))
        stream = mill.running.streams["a"]
        (handed,) = stream.feed_folder.iterdir()
        handed.rename(tmp_path / "kept")
        tried: list[int] = []
        for _ in range(1_000):
            with mill.dispatcher.paused():
                if stream.wants_read(clock.now):
                    tried.append(clock.now)
                mill.dispatcher._send_reads()
                mill.dispatcher._wait_for_answers()
            clock.now += SECOND // 10
        assert [(after - before) / SECOND for before, after in pairwise(tried)] == [
            0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0,
        ]  # fmt: skip
        # Whoever waits for it is told, and does not wait for ever; others go on.
        with pytest.raises(SourceFailed, match="reading a stopped: "):
            mill.drain()
        assert rows(mill, "of_b") == [(7,)] and rows(mill, "of_a") == []
        (tmp_path / "kept").rename(handed)
        clock.now += 30 * SECOND
        mill.drain()
        assert rows(mill, "of_a") == [(1,)] and stream.error is None


def test_what_does_not_read_a_failing_source_is_complete_at_the_end(tmp_path: Path) -> None:
    two_folders(tmp_path)
    path = tmp_path / "a" / "1.parquet"
    path.write_bytes(b"no Parquet at all")
    os.utime(path, (2**32, 2**32))
    script = TWO + "CREATE QUERY counted AS SELECT count(*) AS c FROM b [RANGE 1 HOUR SLIDE 1 HOUR];"
    with mill_in(tmp_path) as mill:
        mill.execute(script)
        with pytest.raises(SourceFailed, match="reading a stopped"):
            mill.drain()
        assert rows(mill, "of_b") == [(7,)] and rows(mill, "counted") == [(1,)]


# -- names that are paths -----------------------------------------------------------------------------------


def test_names_that_are_paths_stay_in_the_home(tmp_path: Path) -> None:
    names = ["../../x", "..", ".", "/x", "a/b", "A", "x" * 300, " ", "a\\b"]
    files = "USING csv OPTIONS (path 'in')"
    folder = tmp_path / "deep" / "er"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "1.csv").write_text("1\n")
    with mill_in(folder) as mill:
        for number, name in enumerate(names):
            source = files if number % 2 else "SOURCE 'tcp://localhost:1?patience=0'"
            mill.execute(f'CREATE STREAM "{name}" (n int) {source}')
            mill.execute(f'CREATE QUERY "{name}/q" AS SELECT n FROM "{name}"')
        mill.open()
        mill.dispatcher.read_all()
        mill.dispatcher.run_all()
        mill.dispatcher.checkpoint_all()
        for number, name in enumerate(names):
            assert rows(mill, f"{name}/q") == ([(1,)] if number % 2 else [])
    outside = [path for path in tmp_path.rglob("*") if (folder / "home") not in (path, *path.parents)]
    assert sorted(outside) == sorted([tmp_path / "deep", folder, folder / "in", folder / "in" / "1.csv"])
    with mill_in(folder) as mill:
        assert set(mill.home.logs) >= {*names, *(f"{name}/q" for name in names)}
