"""REPLAY: bad rows are read again as their stream is declared now, each once, whatever dies meanwhile."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slicemill.api.mill import Mill
from slicemill.catalog.statements import Replay, ReplayOutcome
from slicemill.errors import SlicemillError
from slicemill.lifecycle.replay import REPLAYED, add_numbers
from slicemill.sql.errors import EslError
from slicemill.storage.home import Home
from slicemill.testing import Clock, inline_pool, open_mill
from support.engine import turn

SECOND = 1_000_000
# Times are numbers here, and nobody has said what they count.
WRONG = """CREATE STREAM s (v bigint, ts timestamp) ORDER BY ts SLACK 1 HOUR RETAIN 1 DAY
  USING {} OPTIONS (path 'in');"""
RIGHT = WRONG.replace("ts timestamp)", "ts timestamp seconds)")
QUERY = "CREATE QUERY q AS SELECT v FROM s;"


def opened(folder: Path, clock: Clock, text: str) -> Mill:
    mill = open_mill(home=folder / "home", folder=folder, pool=inline_pool(), clock=clock)
    mill.execute(text)
    mill.open()
    return mill


def write(folder: Path, form: str, name: str, rows: Sequence[tuple[object, object]]) -> None:
    (folder / "in").mkdir(exist_ok=True)
    file = folder / "in" / f"{name}.{form}"
    if form == "csv":
        file.write_text("".join(f"{v},{ts}\n" for v, ts in rows))
    elif form == "json":
        file.write_text("".join(f'{{"v": {v}, "ts": {ts}}}\n' for v, ts in rows))
    else:
        values, times = zip(*rows, strict=True)
        pq.write_table(pa.table({"v": list(values), "ts": pa.array(times, pa.int64())}), file)


def replayed(mill: Mill, text: str = "REPLAY s_errors") -> ReplayOutcome | None:
    (done,) = mill.execute(text)
    assert isinstance(done, Replay)
    return done.outcome


def values(mill: Mill) -> list[object]:
    turn(mill)
    return sorted(timed.row[0] for timed in mill.queries["q"].timed_rows())  # type: ignore[type-var]


def reasons(mill: Mill) -> list[str]:
    log = mill.home.logs["s_errors"]
    return [row["reason"] for epoch in log.epochs() for row in log.read(epoch).to_pylist()]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_after_a_fix_bad_rows_are_read_once(tmp_path: Path, form: str) -> None:
    clock = Clock(100 * SECOND)
    write(tmp_path, form, "a", [(1, 10), (2, 20), (3, 30)])
    with opened(tmp_path, clock, WRONG.format(form) + QUERY) as mill:
        turn(mill)
        assert values(mill) == []
        assert len(reasons(mill)) == 3
        # Nothing has been mended yet: they are bad again, with a number of their own each.
        assert replayed(mill) == ReplayOutcome(0, 3, 0)
        assert len(reasons(mill)) == 6
    with opened(tmp_path, clock, RIGHT.format(form) + QUERY) as mill:
        assert replayed(mill) == ReplayOutcome(3, 0, 0)
        assert replayed(mill) == ReplayOutcome(0, 0, 0)
        mill.drain()
        assert values(mill) == [1, 2, 3]
        assert mill.home.streams["s"][REPLAYED] == [[0, 5]]


def test_where_says_which(tmp_path: Path) -> None:
    clock = Clock(100 * SECOND)
    write(tmp_path, "csv", "a", [(1, 10), (2, 20), (3, 30), ("x", 40)])
    with opened(tmp_path, clock, WRONG.format("csv") + QUERY) as mill:
        turn(mill)
    with opened(tmp_path, clock, RIGHT.format("csv") + QUERY) as mill:
        assert replayed(mill, "REPLAY s_errors WHERE raw LIKE '2,%' OR raw LIKE 'x%'") == ReplayOutcome(
            1, 1, 0
        )
        assert mill.home.streams["s"][REPLAYED] == [[1, 1], [3, 3]]
        assert replayed(mill, "REPLAY s_errors WHERE reason LIKE '%ts%'") == ReplayOutcome(2, 0, 0)
        mill.drain()
        assert values(mill) == [1, 2, 3]
        assert reasons(mill)[-1] == "column v: 'x' is no BIGINT"


def test_rows_that_are_too_old_by_now_are_late_like_any_others(tmp_path: Path) -> None:
    clock = Clock(100 * SECOND)
    strict = [text.replace(" SLACK 1 HOUR", "") for text in (WRONG.format("csv"), RIGHT.format("csv"))]
    write(tmp_path, "csv", "a", [(1, 10)])
    with opened(tmp_path, clock, strict[0] + QUERY) as mill:
        turn(mill)
    write(tmp_path, "csv", "b", [(2, 50), (3, 60)])
    with opened(tmp_path, clock, strict[1] + QUERY) as mill:
        turn(mill)
        assert values(mill) == [2, 3]
        assert replayed(mill) == ReplayOutcome(1, 0, 1)
        mill.drain()
        assert values(mill) == [2, 3]
        assert mill.home.logs["s_late"].rows == 1


def test_it_is_one_record_so_a_crash_leaves_it_before_or_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(100 * SECOND)
    write(tmp_path, "csv", "a", [(1, 10), (2, 20), ("x", 30)])
    with opened(tmp_path, clock, WRONG.format("csv") + QUERY) as mill:
        turn(mill)
    commit = Home.commit
    for step in range(2):
        mill = opened(tmp_path, clock, RIGHT.format("csv") + QUERY)
        with monkeypatch.context() as patched:

            def dying(home: Home, change: object, step: int = step) -> int:
                if not getattr(change, "streams", {}).get("s", {}).get(REPLAYED):
                    return commit(home, change)  # type: ignore[arg-type]
                if step:
                    commit(home, change)  # type: ignore[arg-type]
                raise KeyboardInterrupt

            patched.setattr(Home, "commit", dying)
            with pytest.raises(KeyboardInterrupt):
                mill.execute("REPLAY s_errors")
        # The process is gone: nothing of it may write any more.
        mill.home.close()
    with opened(tmp_path, clock, RIGHT.format("csv") + QUERY) as mill:
        assert replayed(mill) == ReplayOutcome(0, 1, 0)  # that which was bad again
        mill.drain()
        assert values(mill) == [1, 2]


def test_bytes_that_are_no_text_are_not_made_up(tmp_path: Path) -> None:
    clock = Clock(100 * SECOND)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(b"a\xff,10\nfine,20\n")
    text = RIGHT.format("csv").replace("v bigint", "v varchar")
    with opened(tmp_path, clock, text + QUERY) as mill:
        turn(mill)
        assert replayed(mill) == ReplayOutcome(0, 1, 0)
        assert "its bytes were not valid UTF-8" in reasons(mill)[-1]
        mill.drain()
        assert values(mill) == ["fine"]


def test_a_file_that_could_not_be_read_is_no_row(tmp_path: Path) -> None:
    clock = Clock(100 * SECOND)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "broken.csv.gz").write_bytes(b"no gzip at all")
    os.utime(tmp_path / "in" / "broken.csv.gz", (1, 1))
    text = "CREATE STREAM s (v varchar) RETAIN 1 DAY USING csv OPTIONS (path 'in');"
    with opened(tmp_path, clock, text + QUERY) as mill:
        turn(mill)
        assert "this file cannot be read" in reasons(mill)[0]
        assert replayed(mill) == ReplayOutcome(0, 0, 0)
        assert values(mill) == []


def test_rows_that_a_program_feeds_can_be_replayed(tmp_path: Path) -> None:
    clock = Clock(100 * SECOND)
    fed = "CREATE STREAM s (v bigint, ts timestamp{}) ORDER BY ts RETAIN 1 DAY;"
    with opened(tmp_path, clock, fed.format("") + QUERY) as mill:
        mill.feed("s", pa.table({"v": [1, 2], "ts": [10, 20]}))
        mill.dispatcher.admit_handed()
        assert len(reasons(mill)) == 2
    with opened(tmp_path, clock, fed.format(" seconds") + QUERY) as mill:
        assert replayed(mill) == ReplayOutcome(2, 0, 0)
        mill.drain()
        assert values(mill) == [1, 2]


@pytest.mark.parametrize(
    ("esl", "message"),
    [
        ("REPLAY s", "write REPLAY s_errors"),
        ("REPLAY s_eror", "did you mean s_errors"),
        ("REPLAY s_late", "s_late has no rows that could not be read"),
        ("REPLAY s_errors WHERE price > 1", "there is no column price"),
        ("REPLAY s_errors WHERE raw", "raw"),
    ],
)
def test_a_mistake_says_what_to_do(tmp_path: Path, esl: str, message: str) -> None:
    write(tmp_path, "csv", "a", [(1, 10)])
    with opened(tmp_path, Clock(), WRONG.format("csv") + QUERY) as mill:
        with pytest.raises(EslError) as caught:
            mill.execute(esl)
        assert message in str(caught.value)


def test_lines_below_a_header_say_that_they_cannot_be_replayed(tmp_path: Path) -> None:
    write(tmp_path, "csv", "a", [("v", "ts"), (1, 10)])
    text = WRONG.format("csv").replace("'in')", "'in', header 'true')")
    with opened(tmp_path, Clock(), text + QUERY) as mill:
        turn(mill)
        with pytest.raises(SlicemillError, match="named by the headers of its files"):
            mill.execute("REPLAY s_errors")


def test_numbers_are_kept_as_ranges() -> None:
    assert add_numbers([], [3, 1, 2]) == [[1, 3]]
    assert add_numbers([[0, 4]], [2, 5, 9]) == [[0, 5], [9, 9]]
