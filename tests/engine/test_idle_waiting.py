"""Nobody waits for a stream longer than its time needs to pass, and one poll (M21-M26).

Tuples of `a` wait for `b`, in unions, joins and look-ups, directly and behind derived streams. The clock is
the test's. The first batch is slow: for 32 seconds nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

from slicemill.engine.mill import Mill
from support.engine import Clock, inline_pool, rows_as_table, turn

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
    "external, slack": "ORDER BY ts SLACK 1 SECOND",
    "external, slack and skew": "ORDER BY ts SLACK 1 SECOND SKEW 2 SECONDS",
    "internal": "ORDER BY current_time",
    "latent": "",
}
# What waits for both streams: a row for each tuple of `a` but the first.
WAITING = {
    "union": "SELECT k, n FROM a UNION ALL SELECT k, n FROM b",
    "union, b first": "SELECT k, n FROM b UNION ALL SELECT k, n FROM a",
    "union of derived": "SELECT k, n FROM a1 UNION ALL SELECT k, n FROM b2",
    "join": "SELECT a.k AS k, a.n AS n FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k",
    "join, b first": "SELECT a.k AS k, a.n AS n FROM b [RANGE 1 HOUR], a [RANGE 1 HOUR] WHERE a.k = b.k",
    "join of counts": "SELECT a.k AS k, a.n AS n FROM a [ROWS 9], b [ROWS 9] WHERE a.k = b.k",
    "join of derived": "SELECT a1.k AS k, a1.n AS n FROM a1 [ROWS 9], b2 [RANGE 1 HOUR] WHERE a1.k = b2.k",
    "view": "SELECT a.k AS k, a.n AS n FROM a, v WHERE a.k = v.k",
}
DERIVED = """
CREATE STREAM a1 AS SELECT k, n FROM a WHERE n > 0;
CREATE STREAM b1 AS SELECT k, n FROM b WHERE n > 0;
CREATE STREAM b2 AS SELECT k, n + 0 AS n FROM b1;
CREATE VIEW v AS SELECT k, n FROM b [ROWS 9];
"""


class Waiting:
    """A mill that looks at nothing but when it is told to."""

    def __init__(self, mill: Mill, clock: Clock) -> None:
        self.mill = mill
        self.clock = clock

    def feed(self, stream: str, number: int) -> None:
        row = (1, number, self.clock.now)
        columns = self.mill.streams[stream].stream.schema.names
        self.mill.feed(stream, rows_as_table(self.mill, stream, [row[: len(columns)]]))

    def out(self) -> dict[str, bool]:
        """By query, whether the tuple number 4 has come out."""
        found = {}
        for number, name in enumerate(WAITING):
            query = self.mill.queries[f"q{number}"]
            assert query.error is None, query.error
            found[name] = any(timed.row[1] == 4 for timed in query.rows())
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
    mill = Mill(home=home, pool=inline_pool(1), clock=clock, cells=1, read_sources=False)
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
            both.mill.dispatcher._end(both.mill.streams["b"])
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
