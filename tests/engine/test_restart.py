"""What a restart may not change: how state is split, which queries are stopped, who reads what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.runtime import tasks as task
from slicemill.testing import inline_pool, open_mill
from slicemill.time import wall_clock_us
from support.engine import fed_mill, feed_rows, finish, rows_as_table

BID = (
    "CREATE STREAM bid (item int, price double, ts timestamp micros) ORDER BY ts "
    "USING json OPTIONS (path 'bids')"
)
TOTAL = (
    "CREATE QUERY total AS SELECT item, sum(price) OVER (PARTITION BY item ROWS 99 PRECEDING) AS s FROM bid"
)


def write(folder: Path, name: str, *rows: tuple[int, float, int]) -> None:
    (folder / "bids").mkdir(exist_ok=True)
    lines = [json.dumps({"item": item, "price": price, "ts": ts}) for item, price, ts in rows]
    (folder / "bids" / name).write_text("\n".join(lines))


def read(mill: Mill) -> None:
    """All that is there, without ending the streams."""
    mill.running.read_all()
    mill.dispatcher.run_all()


def mill_in(folder: Path, subtasks: int = 1) -> Mill:
    return open_mill(home=folder / "home", pool=inline_pool(), folder=folder, subtasks=subtasks)


def values(mill: Mill, query: str) -> list[tuple[object, ...]]:
    return sorted((timed.row for timed in mill.queries[query].timed_rows()), key=repr)


def test_state_stays_split_as_it_was_whatever_the_number_of_cores(tmp_path: Path) -> None:
    write(tmp_path, "1.json", *((item, 1.0, item + 1) for item in range(10)))
    with mill_in(tmp_path, subtasks=3) as mill:
        mill.execute(f"{BID}; {TOTAL}")
        read(mill)
    write(tmp_path, "2.json", *((item, 1.0, item + 20) for item in range(10)))
    with mill_in(tmp_path, subtasks=2) as mill:
        mill.execute(f"{BID}; {TOTAL}")
        read(mill)
        assert values(mill, "total") == sorted((item, s) for item in range(10) for s in (1.0, 2.0))


HOT = "CREATE QUERY hot AS SELECT item, count(*) OVER (ROWS 99 PRECEDING) AS n FROM bid"
LOW = "CREATE QUERY low AS SELECT item FROM bid WHERE price < 5"
ALL = "CREATE QUERY all_ AS SELECT item FROM bid"


@pytest.mark.parametrize("kept", [LOW, HOT], ids=["shares a unit", "alone in its unit"])
def test_a_query_that_a_start_leaves_out_and_another_declares_again_is_told_to_have_a_hole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: str
) -> None:
    name = kept.split()[2]

    def start(number: int, *statements: str) -> list[str]:
        """What a start with some statements says; each reads a row."""
        caplog.clear()
        write(tmp_path, f"{number}.json", (number, 1.0, number))
        with mill_in(tmp_path) as mill:
            for statement in statements:
                mill.execute(statement)
            read(mill)
        return [record.getMessage() for record in caplog.records if record.name == "slicemill"]

    left_out = f"{name} is kept in {tmp_path / 'home'} and is not declared: it does not run"
    assert start(1, BID, ALL, kept) == start(2, BID, ALL, kept) == []
    for number in (3, 4):
        (said,) = start(number, BID, ALL)
        assert said.startswith(left_out)
    (said,) = start(5, BID, ALL, kept)
    assert said.startswith(f"{name}, kept in {tmp_path / 'home'}, was not declared for a while")
    assert start(6, BID, ALL, kept) == []
    # The hint works when followed.
    assert start(7, BID, ALL)[0].startswith(left_out)
    assert start(8, f"DROP QUERY {name}", BID, ALL, kept) == []
    assert start(9, BID, ALL, kept) == []


def test_a_view_that_nobody_asks_any_more_is_not_told_to_be_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    view = "CREATE VIEW recent AS SELECT item FROM bid [RANGE 1 HOUR]"
    write(tmp_path, "1.json", (1, 1.0, 1))
    for asked in ("; CREATE QUERY ask AS SELECT item FROM recent", ""):
        with mill_in(tmp_path) as mill:
            mill.execute(f"{BID}; {view}; {ALL}{asked}")
            read(mill)
    assert [record.getMessage() for record in caplog.records if record.name == "slicemill"] == []


def test_queries_registered_one_by_one_are_taken_up_together(tmp_path: Path) -> None:
    statements = [
        BID,
        "CREATE QUERY low AS SELECT item FROM bid WHERE price < 5",
        "CREATE QUERY all_ AS SELECT item FROM bid",
    ]
    write(tmp_path, "1.json", (1, 1.0, 1))
    with mill_in(tmp_path) as mill:
        for statement in statements:
            mill.execute(statement)
        read(mill)
        # What comes in now is not run before the mill ends.
        write(tmp_path, "2.json", (2, 2.0, 2))
        mill.running.read_all()
    with mill_in(tmp_path) as mill:
        for statement in statements:
            mill.execute(statement)
        read(mill)
        assert values(mill, "low") == values(mill, "all_") == [(1,), (2,)]


def test_a_query_that_failed_stays_stopped(tmp_path: Path) -> None:
    broken = "CREATE QUERY broken AS SELECT 10 DIV item AS x FROM bid"
    script = f"{BID}; {broken}; CREATE QUERY good AS SELECT item FROM bid"
    write(tmp_path, "1.json", (0, 1.0, 1))
    with mill_in(tmp_path) as mill:
        mill.execute(script)
        read(mill)
        assert mill.queries["broken"].error is not None
    write(tmp_path, "2.json", (5, 1.0, 2))
    with mill_in(tmp_path) as mill:
        mill.execute(script)
        read(mill)
        assert mill.queries["broken"].error is not None
        assert values(mill, "broken") == []
        assert values(mill, "good") == [(0,), (5,)]


def test_a_run_that_was_never_committed_leaves_nothing(tmp_path: Path) -> None:
    """A subtask that has run, of a run of which another subtask could not, goes back to what is committed."""
    pool = inline_pool(2)
    with fed_mill(tmp_path, wall_clock_us, pool, subtasks=2) as mill:
        mill.execute(f"{BID}; {TOTAL}")
        mill.open()
        feed_rows(mill, "bid", [(item, 1.0, item) for item in range(1, 5)])
        mill.dispatcher.run_all()
        feed_rows(mill, "bid", [(item, 10.0, item + 10) for item in range(1, 5)])
        with mill.dispatcher.paused():
            mill.dispatcher._send_runs(mill.dispatcher._ranked(), 1.0)
            # One of two workers is lost after both have answered, and before anybody has heard them.
            pool._events.popleft()
            pool.lose(0)
            mill.dispatcher._wait_for_answers()
        finish(mill)
        assert values(mill, "total") == sorted((item, s) for item in range(1, 5) for s in (1.0, 11.0))


def test_what_was_handed_over_and_not_admitted_leaves_no_files(tmp_path: Path) -> None:
    script = (
        "CREATE STREAM fed (item int, ts timestamp) ORDER BY ts; CREATE QUERY all_ AS SELECT item FROM fed"
    )
    handed = tmp_path / "sources" / "fed" / "handed"
    with fed_mill(tmp_path, wall_clock_us, inline_pool()) as mill:
        mill.execute(script)
        mill.feed("fed", rows_as_table(mill, "fed", [(1, 1)]))
        assert len(list(handed.iterdir())) == 1
    with fed_mill(tmp_path, wall_clock_us, inline_pool()) as mill:
        mill.execute(script)
        mill.open()
        assert not handed.exists()
        feed_rows(mill, "fed", [(2, 2)])
        finish(mill)
        assert values(mill, "all_") == [(2,)]
        assert not list(handed.iterdir())


def test_state_is_written_by_runs_where_workers_are_never_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a restart would replay all that came since load began."""
    monkeypatch.setattr(task, "CHECKPOINT_ROWS", 10)
    with fed_mill(tmp_path, wall_clock_us, inline_pool()) as mill:
        mill.execute("CREATE STREAM s (v int, ts timestamp micros) ORDER BY ts")
        mill.execute("CREATE QUERY q AS SELECT sum(v) OVER (ROWS 9 PRECEDING) AS total FROM s")
        mill.open()
        behind = []
        for number in range(20):
            feed_rows(mill, "s", [(1, 10 * number + row) for row in range(10)])
            mill.dispatcher.run_all()
            (running,) = mill.dispatcher.tasks.values()
            cursor, written = running.cursor("s"), running.fields["checkpoint"]["cursors"]["s"]
            behind.append(len([e for e in mill.home.logs["s"].epochs(after=written, upto=cursor) if e.rows]))
    assert max(behind) == 4
