"""Where a query begins: what it reads then, what it says of it, and how it gets along with live queries."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.runtime.tasks import BACKFILL, RunningTask
from slicemill.sql.errors import EslError
from slicemill.testing import Clock, inline_pool
from slicemill.time import BEGINNING
from support.engine import fed_mill, feed_rows, finish, watermarks

SECOND = 1_000_000
STREAM = "CREATE STREAM s (k int, v bigint, ts timestamp) ORDER BY ts RETAIN {}"
WINDOWS = "SELECT k, sum(v) AS m FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def mill(tmp_path: Path, clock: Clock) -> Iterator[Mill]:
    with fed_mill(tmp_path, clock, inline_pool()) as made:
        made.execute(STREAM.format("1 HOUR"))
        made.open()
        yield made


def feed(mill: Mill, clock: Clock, first: int, last: int) -> None:
    """A row at each second."""
    for second in range(first, last + 1):
        clock.now = second * SECOND
        feed_rows(mill, "s", [(second % 2, second, second * SECOND)])


def given(mill: Mill, query: str) -> list[object]:
    return [timed.row[0] for timed in mill.queries[query].timed_rows()]


def test_it_begins_at_a_time_whatever_the_borders_of_batches(mill: Mill, clock: Clock) -> None:
    clock.now = 9 * SECOND
    feed_rows(mill, "s", [(0, second, second * SECOND) for second in range(1, 10)])  # all in one
    feed(mill, clock, 10, 12)
    mill.execute("CREATE QUERY q FROM TIMESTAMP '1970-01-01 00:00:06' AS SELECT v FROM s")
    sums = "SELECT sum(v) OVER (ROWS 100 PRECEDING) AS m FROM s"
    mill.execute(f"CREATE QUERY sums FROM TIMESTAMP '1970-01-01 00:00:06' AS {sums}")
    assert mill.queries["q"].complete_from() == 6 * SECOND - 1
    mill.dispatcher.run_some()
    mill.close(checkpoint=False)
    again = fed_mill(mill.home.folder, clock, inline_pool(), subtasks=2)
    with again:
        again.statements.restore()
        again.open()
        feed(again, clock, 13, 14)
        finish(again)
        assert given(again, "q") == [*range(6, 15)]
        assert given(again, "sums") == [sum(range(6, last + 1)) for last in range(6, 15)]


def test_what_is_gone_is_told_and_complete_from_is_true(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with fed_mill(tmp_path, clock, inline_pool()) as mill:
        mill.execute(STREAM.format("10 SECONDS"))
        mill.open()
        feed(mill, clock, 1, 20)
        mill.retention.collect()
        with caplog.at_level(logging.WARNING, "slicemill"):
            mill.execute(f"CREATE QUERY q FROM BEGINNING AS {WINDOWS}")
        assert "s reaches back to 1970-01-01 00:00:11" in caplog.text
        assert mill.queries["q"].complete_from() == 15 * SECOND
        mill.execute("CREATE QUERY rows FROM BEGINNING AS SELECT v FROM s")
        finish(mill)
        assert given(mill, "rows") == [*range(11, 21)]


def test_a_stream_that_is_retained_later_reaches_back_to_then(tmp_path: Path, clock: Clock) -> None:
    bare = STREAM.split(" RETAIN")[0]
    other = "CREATE QUERY other AS SELECT k FROM s WHERE v > 7"
    with fed_mill(tmp_path, clock, inline_pool()) as mill:
        mill.execute(f"{bare}; {other}")
        mill.open()
        feed(mill, clock, 1, 8)
    with fed_mill(tmp_path, clock, inline_pool()) as mill:
        mill.execute(f"{STREAM.format('1 HOUR')}; {other}")
        mill.open()
        feed(mill, clock, 9, 12)
        mill.execute("CREATE QUERY q FROM BEGINNING AS SELECT v FROM s")
        assert mill.queries["q"].complete_from() == 8 * SECOND
        finish(mill)
        assert given(mill, "q") == [9, 10, 11, 12]


def test_it_says_how_far_it_is(mill: Mill, clock: Clock) -> None:
    feed(mill, clock, 1, 40)
    mill.execute("CREATE QUERY q FROM BEGINNING AS SELECT v FROM s")
    query = mill.queries["q"]
    begun = mill.backfills.progress_of("q")
    assert begun is not None
    assert (begun.rows_done, begun.rows, begun.rows_left, begun.share) == (0, 40, 40, 0.0)
    assert begun.seconds_left is None, "nothing has been measured yet"
    assert "q reads the past in a task of its own: 0 % of 40 rows" in query.explain()
    task = mill.dispatcher.running.writers["q"]
    task.statistics.cost.overhead, task.statistics.cost.per_row = 0.001, 0.002
    mill.dispatcher.running.ran(task, clock.now)
    mill.dispatcher.run_some()
    part = mill.backfills.progress_of("q")
    assert part is not None
    assert 0 < part.rows_done < 40
    assert part.rows_left == 40 - part.rows_done
    feed(mill, clock, 41, 44)
    later = mill.backfills.progress_of("q")
    assert later is not None
    assert (later.rows_done, later.rows, later.rows_left) == (part.rows_done, 40, part.rows_left + 4)
    mill.dispatcher.run_all()
    assert mill.backfills.progress_of("q") is None
    assert query.complete_from() == BEGINNING


def test_who_reads_the_past_takes_half_as_long_as_a_live_run_and_only_what_others_leave(
    mill: Mill, clock: Clock
) -> None:
    mill.execute("CREATE QUERY live AS SELECT k, v FROM s")
    feed(mill, clock, 1, 400)
    mill.dispatcher.run_all()
    mill.execute(f"CREATE QUERY past FROM BEGINNING AS {WINDOWS}")
    running = mill.dispatcher.running
    past, live = running.writers["past"], running.writers["live"]
    for task in (past, live):
        task.statistics.cost.overhead, task.statistics.cost.per_row = 0.001, 0.001
        running.ran(task, clock.now)
    quantum_s = mill.dispatcher.quantum_s

    def taken() -> dict[RunningTask, float]:
        """What would run now, in this order, and how many rows of it."""
        positions, batches = running.ready(watermarks(mill), clock.now, quantum_s)
        shares = batches.rows / batches.pending
        ranked = {running.tasks[p]: float(share) for p, share in zip(positions, shares, strict=True)}
        waiting = {running.tasks[p]: rows for p, rows in zip(positions, batches.pending, strict=True)}
        return {
            task: share * waiting[task]
            for task, share in running.order_backfills_last(ranked, clock.now).items()
        }

    running._last_run_us[running.position[past.id]] = clock.now
    for live_s, rows in (
        (0.01, 4),
        (0.001, 1),
        (1.0, 19),
    ):  # as long as its overhead at least, a quantum at most
        running._usual_s[running.position[live.id]] = live_s
        assert taken() == {past: pytest.approx(rows)}
    past.statistics.cost.per_row = 1e-9
    running._update_row(running.position[past.id], past, clock.now)
    assert taken() == {past: pytest.approx(50)}, "few rows first, until it is known what they take"
    past.statistics.cost.per_row = 0.001
    running._update_row(running.position[past.id], past, clock.now)
    feed(mill, clock, 401, 402)
    running.refresh(clock.now)
    running._last_run_us[running.position[past.id]] = clock.now
    assert list(taken()) == [live, past]
    assert taken()[live] == 2, "the past does not make a live run shorter"
    # It has not run for ten times as long as its run takes: now it goes first.
    clock.now += SECOND
    assert list(taken()) == [past, live]
    # What waits since long ago is no load that anybody would be shed for.
    assert running.backlog(1).certain_s == pytest.approx(0.003)


def test_a_query_that_can_join_others_does_and_others_say_why_not(mill: Mill, clock: Clock) -> None:
    mill.execute(f"CREATE QUERY live AS {WINDOWS}")
    feed(mill, clock, 1, 20)
    mill.execute(f"CREATE QUERY past FROM BEGINNING AS {WINDOWS}")
    mill.execute(
        "CREATE QUERY rows FROM BEGINNING AS SELECT sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS m FROM s"
    )
    mill.dispatcher.run_all()
    assert "past has read the past, and is about to join the others" in mill.queries["past"].explain()
    assert "rows has a task of its own: what it has seen counts for ever" in mill.queries["rows"].explain()
    for second in range(21, 40):
        feed(mill, clock, second, second)
        mill.dispatcher.run_all()
    shared = mill.dispatcher.running.writers["live"]
    assert mill.dispatcher.running.writers["past"] is shared
    assert sorted(log for _, log in shared.plan.task.outputs) == ["live", "past"]
    assert not any(BACKFILL in fields for fields in mill.home.tasks.values() if "past" in fields["outputs"])
    assert mill.queries["past"].complete_from() == BEGINNING
    assert "unit of its own" not in mill.queries["past"].explain()


def test_a_query_from_the_past_can_go_at_any_step(mill: Mill, clock: Clock) -> None:
    mill.execute(f"CREATE QUERY live AS {WINDOWS}")
    feed(mill, clock, 1, 20)
    for step in range(4):
        mill.execute(f"CREATE QUERY past FROM BEGINNING AS {WINDOWS}")
        for second in range(step * 6):
            feed(mill, clock, 21 + step * 20 + second, 21 + step * 20 + second)
            mill.dispatcher.run_all()
        mill.execute("DROP QUERY past")
        assert [*mill.dispatcher.tasks] == ["aggregates of s by k"]
        assert [*mill.home.tasks] == ["aggregates of s by k"]
        assert mill.home.tasks["aggregates of s by k"]["outputs"] == ["live"]


@pytest.mark.parametrize(
    ("esl", "message", "hint"),
    [
        (
            "CREATE STREAM r (k int); CREATE QUERY q FROM BEGINNING AS SELECT k FROM r",
            "r is not retained, so there is no past to begin in",
            "declare r with RETAIN",
        ),
        (
            "CREATE STREAM r (k int); CREATE STREAM d AS SELECT k FROM r;"
            "CREATE QUERY q FROM BEGINNING AS SELECT k FROM d",
            "d is not retained",
            "declare d with RETAIN",
        ),
        (
            "CREATE STREAM r (k int, ts timestamp) ORDER BY ts;"
            "CREATE QUERY q FROM BEGINNING AS SELECT k FROM r_late",
            "r_late is not retained",
            "declare r with RETAIN",
        ),
        (
            "CREATE TABLE t (k int); CREATE QUERY q FROM BEGINNING AS SELECT k FROM t",
            "an ad hoc query reads what tables hold now",
            "leave FROM out",
        ),
        (
            "CREATE QUERY q FROM TIMESTAMP 'monday' AS SELECT k FROM s",
            "'monday' is not a timestamp",
            "in UTC",
        ),
        (
            "CREATE QUERY q FROM yesterday AS SELECT k FROM s",
            "did not expect yesterday",
            "FROM BEGINNING, FROM NOW, or",
        ),
        ('CREATE QUERY "q (joining)" AS SELECT k FROM s', "is for queries that join others", "another name"),
    ],
)
def test_a_mistake_says_what_to_do(mill: Mill, esl: str, message: str, hint: str) -> None:
    with pytest.raises(EslError) as caught:
        mill.execute(esl)
    assert message in str(caught.value)
    assert hint in str(caught.value)


def test_a_derived_stream_without_retain_is_computed_again_from_what_is_retained(
    mill: Mill, clock: Clock
) -> None:
    mill.execute("CREATE STREAM d AS SELECT k, v FROM s; CREATE QUERY first AS SELECT v FROM d")
    feed(mill, clock, 1, 5)
    mill.dispatcher.run_all()
    mill.retention.collect()  # of d
    mill.execute("CREATE QUERY later AS SELECT v FROM d; CREATE QUERY past FROM BEGINNING AS SELECT v FROM d")
    feed(mill, clock, 6, 9)
    mill.dispatcher.run_all()
    assert given(mill, "later") == [6, 7, 8, 9]
    assert given(mill, "past") == given(mill, "first") == list(range(1, 10))
    assert "d is computed again for it" in mill.backfills.describe("past")


def test_tuples_of_the_past_meet_what_a_table_holds_when_they_are_read(mill: Mill, clock: Clock) -> None:
    """Nobody waits until all of the past has been read when a table changes."""
    mill.execute("CREATE TABLE t (k int, name varchar)")
    mill.tables.set_rows("t", [(0, "even"), (1, "odd")])
    feed(mill, clock, 1, 40)
    mill.execute("CREATE QUERY q FROM BEGINNING AS SELECT t.name, s.v FROM s, t WHERE s.k = t.k")
    sums = (
        "SELECT t.name, count(*) OVER (PARTITION BY t.name ROWS 99 PRECEDING) AS n FROM s, t WHERE s.k = t.k"
    )
    mill.execute(f"CREATE QUERY n FROM BEGINNING AS {sums}")
    for name in ("q", "n"):
        task = mill.dispatcher.running.writers[name]
        task.statistics.cost.overhead, task.statistics.cost.per_row = 0.001, 0.002
        mill.dispatcher.running.ran(task, clock.now)
    mill.dispatcher.run_some()
    read = {name: mill.backfills.progress_of(name) for name in ("q", "n")}
    mill.tables.set_rows("t", [(0, "gerade"), (1, "odd")])
    for name, before in read.items():
        after = mill.backfills.progress_of(name)
        assert before is not None
        assert after is not None
        assert 0 < before.rows_done == after.rows_done < 40
    finish(mill)
    names = [(timed.row[1], timed.row[0]) for timed in mill.queries["q"].timed_rows()]
    first = read["q"].rows_done if read["q"] is not None else 0
    assert names == [(v, "odd" if v % 2 else "even" if v <= first else "gerade") for v in range(1, 41)]
    assert [timed.row[1] for timed in mill.queries["n"].timed_rows() if timed.row[0] == "odd"] == [
        *range(1, 21)
    ]
