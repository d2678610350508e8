"""Nobody waits for a stream longer than its time needs to pass, and one poll (M21-M26).

Tuples of `a` wait for `b`, in unions, joins and look-ups, directly and behind derived streams. The clock is
the test's. The first batch is slow: for 32 seconds nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest

from connectors.sender import Sender, eventually
from slicemill.api.mill import Mill
from slicemill.runtime.workers.inline import InlinePool
from slicemill.testing import Clock, inline_pool, open_mill
from support.engine import feed_rows, rows_as_table, turn

SECOND = 1_000_000
BEGIN = 1_800_000_000 * SECOND
SLOW = 32 * SECOND
SKEW, SLACK = 2 * SECOND, SECOND
# A notice may be under way for so long.
NOTICE = 50_000
# Nothing that can be out takes longer.
POLL = 100_000

KINDS = {
    "external": "ORDER BY ts",
    "external, skew": "ORDER BY ts SKEW 2 SECONDS",
    "external, slack and skew": "ORDER BY ts SLACK 1 SECOND SKEW 2 SECONDS",
    "internal": "ORDER BY current_time",
    "latent": "",
}
# What waits for both streams: a row for each tuple of `a` but the first.
WAITING = {
    "union": "SELECT k, n FROM a UNION ALL SELECT k, n FROM b",
    "union, b first": "SELECT k, n FROM b UNION ALL SELECT k, n FROM a",
    "union of derived": "SELECT k, n FROM a1 UNION ALL SELECT k, n FROM b2",
    "union with windows": "SELECT k, n FROM a UNION ALL SELECT k, n FROM b3",
    "join": "SELECT a.k AS k, a.n AS n FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k",
    "join, b first": "SELECT a.k AS k, a.n AS n FROM b [RANGE 1 HOUR], a [RANGE 1 HOUR] WHERE a.k = b.k",
    "join of three": "SELECT a.k AS k, a.n AS n FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR],"
    " b [RANGE 1 HOUR] AS c WHERE a.k = b.k AND b.k = c.k",
    "join of counts": "SELECT a.k AS k, a.n AS n FROM a [ROWS 9], b [ROWS 9] WHERE a.k = b.k",
    "join of derived": "SELECT a1.k AS k, a1.n AS n FROM a1 [ROWS 9], b2 [RANGE 1 HOUR] WHERE a1.k = b2.k",
    "view": "SELECT a.k AS k, a.n AS n FROM a, v WHERE a.k = v.k",
}
DERIVED = """
CREATE STREAM a1 AS SELECT k, n FROM a WHERE n > 0;
CREATE STREAM b1 AS SELECT k, n FROM b WHERE n > 0;
CREATE STREAM b2 AS SELECT k, n + 0 AS n FROM b1;
CREATE STREAM b3 AS SELECT k, 0 * count(*) AS n FROM b [RANGE 1 DAY SLIDE 1 HOUR] GROUP BY k;
CREATE VIEW v AS SELECT k, n FROM b [ROWS 9];
"""


class Waiting:
    """A mill that looks at nothing but when it is told to."""

    def __init__(self, mill: Mill, clock: Clock) -> None:
        self.mill = mill
        self.clock = clock

    def feed(self, stream: str, number: int) -> None:
        row = (1, number, self.clock.now)
        columns = self.mill.running.streams[stream].stream.schema.names
        self.mill.feed(stream, rows_as_table(self.mill, stream, [row[: len(columns)]]))

    def out(self) -> dict[str, bool]:
        """By query, whether the tuple number 4 has come out."""
        found = {}
        for number, name in enumerate(WAITING):
            query = self.mill.queries[f"q{number}"]
            assert query.error is None, query.error
            found[name] = any(timed.row[1] == 4 for timed in query.timed_rows())
        return found

    def polls(self, until: int) -> dict[str, bool]:
        """What is out when the clock has got there, poll by poll for the last of them."""
        self.clock.now = max(self.clock.now, until - 2 * POLL)
        while self.clock.now < until:
            turn(self.mill)
            self.clock.now = min(self.clock.now + POLL, until)
        turn(self.mill)
        return self.out()


@contextmanager
def waiting(home: Path, kind_a: str, kind_b: str) -> Iterator[Waiting]:
    clock = Clock(BEGIN)
    mill = open_mill(home=home, pool=inline_pool(1), clock=clock, subtasks=1, read_sources=False)
    try:
        for name, kind in (("a", kind_a), ("b", kind_b)):
            time = ", ts timestamp" if kind.startswith("external") else ""
            mill.execute(f"CREATE STREAM {name} (k int, n int{time}) {KINDS[kind]}")
        queries = (f"CREATE QUERY q{number} AS {query};" for number, query in enumerate(WAITING.values()))
        mill.execute(DERIVED + "".join(queries))
        mill.open()
        yield Waiting(mill, clock)
    finally:
        mill.close()


def admitted_at(kind: str, sent: int) -> int | None:
    """When a tuple of a stream comes into its log, if nothing follows it."""
    if "slack" not in kind:
        return sent
    return sent + max(SKEW, SLACK) + NOTICE if "skew" in kind else None


def known_at(kind: str, ts: int) -> int | None:
    """When it is known that nothing at or below `ts` will come of a stream that is silent since `BEGIN`."""
    if not kind.startswith("external"):
        return ts + 1
    return ts + max(SKEW, SLACK if "slack" in kind else 0) + NOTICE + 1 if "skew" in kind else None


@pytest.mark.parametrize(
    ("kind_a", "kind_b", "state"), list(product(KINDS, KINDS, ("silent", "active", "ended"))), ids=str
)
def test_a_tuple_waits_for_the_time_of_the_other_stream_and_one_poll(
    kind_a: str, kind_b: str, state: str, tmp_path: Path
) -> None:
    with waiting(tmp_path, kind_a, kind_b) as both:
        both.feed("b", 1)
        both.feed("a", 2)
        both.clock.now += SLOW
        both.feed("a", 3)
        turn(both.mill)
        if state == "ended":
            both.mill.dispatcher.admit_rows(both.mill.running.streams["b"])
            both.mill.running.streams["b"].ended = True
        both.clock.now += SECOND
        sent = both.clock.now
        both.feed("a", 4)
        moments = [admitted_at(kind_a, sent), sent if state != "silent" else known_at(kind_b, sent)]
        if state == "active":
            turn(both.mill)
            both.clock.now += 2 * SECOND
            both.feed("b", 5)
            moments.append(both.clock.now)
        due = None if None in moments else max(moment for moment in moments if moment is not None)
        if due is None:
            assert not any(both.polls(sent + 3600 * SECOND).values())
            both.mill.dispatcher.end_streams()
            due = both.clock.now
        elif due - 2 > both.clock.now:
            assert not any(both.polls(due - 2).values())
        assert all(both.polls(due + POLL).values()), both.out()


def numbers(mill: Mill, query: str = "out") -> list[object]:
    assert mill.queries[query].error is None, mill.queries[query].error
    return [timed.row[0] for timed in mill.queries[query].timed_rows()]


@contextmanager
def opened(folder: Path, script: str) -> Iterator[tuple[Mill, Clock]]:
    clock = Clock(BEGIN)
    with open_mill(home=folder / "home", folder=folder, pool=inline_pool(1), clock=clock, subtasks=1) as mill:
        mill.execute(script)
        mill.open()
        yield mill, clock


def test_late_and_bad_rows_have_the_time_of_the_clock(tmp_path: Path) -> None:
    script = """
        CREATE STREAM s (n int, ts timestamp) ORDER BY ts;
        CREATE STREAM other (n int) ORDER BY current_time;
        CREATE QUERY out AS SELECT n FROM s_late UNION ALL SELECT n FROM other;
        CREATE QUERY bad AS SELECT 0 AS n FROM s_errors UNION ALL SELECT n FROM other;
        CREATE QUERY ended AS SELECT count(*) AS n FROM s_late [RANGE 10 SECONDS SLIDE 10 SECONDS];
    """
    with opened(tmp_path, script) as (mill, clock):
        feed_rows(mill, "s", [(1, BEGIN), (2, BEGIN - 1)])
        clock.now += 1
        feed_rows(mill, "other", [(3,)])
        clock.now += 1
        turn(mill)
        assert numbers(mill) == [2, 3] and numbers(mill, "bad") == [3]
        clock.now += 10 * SECOND
        turn(mill)
        assert numbers(mill, "ended") == [1]
        before = clock.now
    # A restart with a clock that is behind gives no row a time that queries have passed.
    with opened(tmp_path, script) as (mill, clock):
        feed_rows(mill, "s", [(4, BEGIN - 1)])
        turn(mill)
        (late,) = [timed for timed in mill.queries["out"].timed_rows() if timed.row[0] == 4] or [None]
        assert late is None or late.ts >= before


def test_rows_that_wait_to_be_admitted_are_no_silence(tmp_path: Path) -> None:
    script = """
        CREATE STREAM s (n int, ts timestamp) ORDER BY ts SKEW 1 SECOND;
        CREATE STREAM i (n int) ORDER BY current_time;
        CREATE QUERY out AS SELECT n FROM s;
        CREATE QUERY late AS SELECT n FROM s_late;
        CREATE QUERY stamped AS SELECT n FROM i;
    """
    with opened(tmp_path, script) as (mill, clock):
        for number in range(4):
            mill.feed("s", rows_as_table(mill, "s", [(number, clock.now)]))
            mill.feed("i", rows_as_table(mill, "i", [(number,)]))
            clock.now += 10 * SECOND
        turn(mill)
        assert numbers(mill) == [0, 1, 2, 3] and numbers(mill, "late") == []
        stamps = [timed.ts for timed in mill.queries["stamped"].timed_rows()]
        assert stamps == [BEGIN + number * 10 * SECOND for number in range(4)]


def iso(ts: int) -> str:
    return datetime.fromtimestamp(ts / SECOND, UTC).isoformat()


def test_files_that_do_not_come_are_waited_for_until_the_next_poll(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    script = """
        CREATE STREAM a (n int, ts timestamp) ORDER BY ts;
        CREATE STREAM b (n int, ts timestamp) ORDER BY ts SKEW 2 SECONDS USING csv OPTIONS (path 'b');
        CREATE QUERY out AS SELECT n FROM a UNION ALL SELECT n FROM b;
    """
    with opened(tmp_path, script) as (mill, clock):
        (tmp_path / "b" / "1.csv").write_text(f"1,{iso(BEGIN)}\n")
        turn(mill)
        clock.now += SLOW
        feed_rows(mill, "a", [(2, clock.now - SKEW - 1)])
        turn(mill)  # the folder is listed again, after the slow batch
        assert numbers(mill) == [1, 2]
        feed_rows(mill, "a", [(3, clock.now)])
        due = clock.now + SKEW
        while clock.now < due - 1:
            clock.now += min(POLL, due - 1 - clock.now)
            turn(mill)
            assert numbers(mill) == [1, 2]
        clock.now = due + 200_000  # as long as a reader of files pauses at most
        turn(mill)
        assert numbers(mill) == [1, 2, 3]


def test_a_silent_socket_lets_out_what_is_held_back(tmp_path: Path) -> None:
    with closing(Sender()) as sender:
        script = f"""
            CREATE STREAM s (n int, ts timestamp) ORDER BY ts SLACK 1 SECOND SKEW 2 SECONDS
              SOURCE 'tcp://127.0.0.1:{sender.port}';
            CREATE QUERY out AS SELECT n FROM s;
        """
        with opened(tmp_path, script) as (mill, clock):
            sender.send("".join(f"{n},{iso(BEGIN + n * SECOND // 4)}\n" for n in (2, 1, 3)).encode())

            def have_come() -> bool:
                clock.now += SECOND
                turn(mill)
                return bool(mill.running.streams["s"].fields.get("next_arrival", 0) == 3)

            eventually(have_come)
            clock.now += 4 * SECOND
            turn(mill)
            assert numbers(mill) == [1, 2, 3]
            # Nobody hears a sender whose worker has died: that is no silence of his.
            told = mill.dispatcher.watermark("s")
            pool = mill.dispatcher._pool
            assert isinstance(pool, InlinePool)
            pool.lose(0)
            with mill.dispatcher.paused():
                mill.dispatcher._take(pool.wait(0))
            clock.now += 60 * SECOND
            assert mill.dispatcher.watermark("s") == told


def test_what_is_held_back_comes_out_when_the_source_ends(tmp_path: Path) -> None:
    script = """
        CREATE STREAM bid (auction bigint, ts timestamp) ORDER BY ts SLACK 1 HOUR
          SOURCE 'nexmark://bid?events=50';
        CREATE QUERY out AS SELECT auction FROM bid;
        CREATE QUERY counted AS SELECT count(*) AS n FROM bid [RANGE 1 DAY SLIDE 1 DAY];
    """
    with opened(tmp_path, script) as (mill, clock):
        clock.now += 3600 * SECOND
        turn(mill)
        clock.now += 3600 * SECOND
        turn(mill)
        assert mill.running.streams["bid"].ended
        assert numbers(mill, "counted") == [len(numbers(mill))] and len(numbers(mill)) > 0


def test_a_restart_takes_back_no_time_that_was_told_behind_a_derived_stream(tmp_path: Path) -> None:
    script = """
        CREATE STREAM a (n int, ts timestamp) ORDER BY ts;
        CREATE STREAM b (n int, ts timestamp) ORDER BY ts SKEW 2 SECONDS;
        CREATE STREAM d AS SELECT n FROM b WHERE n > 0;
        CREATE QUERY out AS SELECT n FROM a UNION ALL SELECT n FROM d;
        CREATE QUERY late AS SELECT n FROM b_late;
    """
    with opened(tmp_path, script) as (mill, clock):
        feed_rows(mill, "b", [(1, BEGIN)])
        feed_rows(mill, "a", [(2, BEGIN + 30 * SECOND)])
        turn(mill)
        clock.now += 40 * SECOND
        turn(mill)
        assert numbers(mill) == [1, 2]
    with opened(tmp_path, script) as (mill, clock):
        feed_rows(mill, "b", [(3, BEGIN + 20 * SECOND), (4, BEGIN + 50 * SECOND)])
        feed_rows(mill, "a", [(5, BEGIN + 60 * SECOND)])
        clock.now += 80 * SECOND
        turn(mill)
        assert numbers(mill) == [1, 2, 4, 5] and numbers(mill, "late") == [3]
