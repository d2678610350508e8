"""Metrics of every kind of query against an observer who sees only tuples and results.

The clock belongs to the test, so both agree exactly. The observer knows when each tuple was sent, and when
each result could be read. A result caused by a tuple carries the tuple's stamp; a result released by time was
due when the time of a stream reached the release time, which follows from the sent tuples.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from slicemill.api.mill import Mill
from support.engine import Clock, fed_mill, feed_rows, inline_pool

SECOND = 1_000_000
BEGAN = 1_700_000_000 * SECOND
STREAMS = "abcdef"
SLACK, SKEW = 2 * SECOND, 1 * SECOND

SCRIPT = """
CREATE STREAM a (k int, v int, sent bigint, ts timestamp) ORDER BY ts;
CREATE STREAM b (k int, v int, sent bigint, ts timestamp) ORDER BY ts;
CREATE STREAM c (k int, v int, sent bigint) ORDER BY current_time;
CREATE STREAM d (k int, v int, sent bigint, ts timestamp) ORDER BY ts SKEW 1 SECOND;
CREATE STREAM e (k int, v int, sent bigint, ts timestamp) ORDER BY ts SLACK 2 SECONDS;
CREATE STREAM f (k int, v int, sent bigint, ts timestamp, since timestamp) ORDER BY ts;
CREATE STREAM few AS SELECT k, v, sent, ts FROM a WHERE v > 7;
CREATE STREAM both AS SELECT k, v, sent FROM a UNION ALL SELECT k, v, sent FROM b;
CREATE STREAM counted AS
  SELECT count(*) AS n, window_end() AS at FROM a [RANGE 1 SECOND SLIDE 1 SECOND];
CREATE STREAM shuffled AS SELECT k, sent, since FROM f ORDER BY since SLACK 2 SECONDS;
CREATE TABLE history (k int, v int, high boolean);
CREATE CLASSIFIER levels ON a(v) PARTITION BY k LEARN high FROM history EVERY 1 SECOND WITH (capacity = 2);
CREATE AGGREGATE newest(next bigint) : bigint {
  TABLE state(value bigint);
  INITIALIZE: { INSERT INTO state VALUES (next); INSERT INTO RETURN VALUES (next); }
  ITERATE: { UPDATE state SET value = next; INSERT INTO RETURN SELECT value FROM state; }
};
"""

# Rows caused by tuples have the latest stamp of these tuples as `sent`.
LATER = "CASE WHEN X.ts > Y.ts THEN X.sent ELSE Y.sent END AS sent"
CAUSED = {
    "chosen": "SELECT sent FROM a WHERE v > 4",
    "counted_over": "SELECT sent, sum(v) OVER (PARTITION BY k ROWS 3 PRECEDING) AS s FROM a",
    "recent": "SELECT sent, max(v) OVER (RANGE 2 SECONDS PRECEDING) AS s FROM a",
    "joined": f"SELECT {LATER} FROM a [RANGE 3 SECONDS] AS X, b [RANGE 2 SECONDS] AS Y WHERE X.k = Y.k",
    "crossed": f"SELECT {LATER} FROM a [RANGE 1 SECOND] AS X, b [RANGE 1 SECOND] AS Y WHERE X.v < Y.v",
    "merged": "SELECT sent FROM a UNION ALL SELECT sent FROM b WHERE v > 2",
    "grouped": "SELECT k, newest(sent) AS sent FROM a GROUP BY k",
    "derived": "SELECT sent FROM few WHERE k < 3",
    "derived_join": f"SELECT {LATER} FROM few [RANGE 3 SECONDS] AS X, b [RANGE 3 SECONDS] AS Y "
    "WHERE X.k = Y.k",
    "stamped": "SELECT sent FROM c",
    "in_order": "SELECT sent FROM e",
}
WINDOW = "[RANGE 3 SECONDS SLIDE 1 SECOND]"
COUNT = f"SELECT count(*) AS n, window_end() AS at FROM {{}} {WINDOW}"
SLOT = "RANGE 2 SECONDS PRECEDING SLIDE 2 SECONDS"


def its_end(ts: int, row: Mapping[str, Any]) -> int:
    del ts
    return int(row["at"].timestamp() * SECOND)


def own_time(ts: int, row: Mapping[str, Any]) -> int:
    del row
    return ts


def end_of_slot(ts: int, row: Mapping[str, Any]) -> int:
    del row
    return (ts // (2 * SECOND) + 1) * 2 * SECOND


Release = Callable[[int, Mapping[str, Any]], int]
# Rows released by time: the streams whose time counts, and the release time.
RELEASED: Mapping[str, tuple[str, str, Release]] = {
    "plain_window": (COUNT.format("a"), "a", its_end),
    "grouped_window": (COUNT.format("a").replace("count(*)", "k, sum(v)") + " GROUP BY k", "a", its_end),
    "holistic_window": (COUNT.format("a").replace("count(*)", "median(v)"), "a", its_end),
    "filtered_window": (COUNT.format("a") + " WHERE v > 8", "a", its_end),
    "clock_window": (COUNT.format("c"), "c", its_end),
    "skewed_window": (COUNT.format("d"), "d", its_end),
    "slack_window": (COUNT.format("e"), "e", its_end),
    "derived_window": (COUNT.format("few"), "a", its_end),
    "merged_window": (COUNT.format("both"), "ab", its_end),
    "window_of_windows": ("SELECT n, at FROM counted WHERE n > 1", "a", its_end),
    "slot": (f"SELECT sum(v) OVER (PARTITION BY k {SLOT}) AS s FROM a", "a", end_of_slot),
    "reordered": ("SELECT sent FROM shuffled", "f", lambda ts, _: ts + SLACK + 1),
    "classified": ("SELECT k, time AS at FROM levels", "a", its_end),
    "coalesced": ("SELECT R.v FROM a(v) AS R RANGE 4 SECONDS SLIDES 2 SECONDS PARTITION BY k", "a", own_time),
}


@dataclass(slots=True)
class Outside:
    """Observer's knowledge: when each tuple was sent with which timestamp, and when all streams had ended."""

    sent: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {name: [] for name in STREAMS})
    ended: float = math.inf

    def due(self, streams: str, at: int) -> float:
        """Return when time reached a moment in the first of these streams."""
        return min(self.ended, *(self._came(stream, at) for stream in streams))

    def after_slack(self, ts: int) -> float:
        """Return when the SLACK of stream e was over for a tuple with this timestamp."""
        return min(self.ended, self._came("e", ts))

    def _came(self, stream: str, at: int) -> float:
        if stream == "c":
            return at
        if stream == "e":
            at += SLACK
        tuples = self.sent[stream]
        first = min((sent for sent, ts in tuples if ts >= at), default=math.inf)
        if stream != "d":
            return first
        # Silence advances the time, too: by the clock since the last tuple, less the skew.
        for number, (sent, ts) in enumerate(tuples):
            until = tuples[number + 1][0] if number + 1 < len(tuples) else math.inf
            silent = sent + at - ts + SKEW
            if sent <= silent <= until:
                return min(first, silent)
        return first


@dataclass(slots=True)
class Seen:
    """Results of a query as a subscriber gets them: when they arrived, and when they were due."""

    due: list[float] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    ideal: list[Any] = field(default_factory=list)


class World:
    """Engine with the test's clock, fed and run at random, with a subscriber for every query."""

    def __init__(self, home: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock(BEGAN)
        self.outside = Outside()
        self.results: dict[str, list[tuple[int, dict[str, Any], int, Any]]] = {}
        self.mill = fed_mill(home, self.clock, inline_pool(), subtasks=self.chance.choice([1, 3]))
        self.mill.table("history", [(k, v, v > 5) for v in range(11) for k in range(3)])
        self.mill.execute(SCRIPT)
        queries = {**CAUSED, **{name: text for name, (text, _, _) in RELEASED.items()}}
        self.mill.execute(
            "".join(
                f"CREATE QUERY {name} WITH (slo = 'p95 < 700 ms') AS {text};\n"
                for name, text in queries.items()
            )
        )
        for name, query in self.mill.queries.items():
            self.results[name] = []
            query.subscribe(self._subscriber(name))
        self.mill.open()

    def _subscriber(self, name: str) -> Callable[[pa.Table], None]:
        def receive(table: pa.Table) -> None:
            times = table.column("_ts").cast(pa.int64()).to_pylist()
            ideal = self.mill.dispatcher.running.ideal_time(name)
            for ts, row in zip(times, table.to_pylist(), strict=True):
                self.results[name].append((ts, row, self.clock.now, ideal))

        return receive

    def send(self, stream: str) -> None:
        """Send a few tuples together; their timestamps are near the time of sending."""
        count, rows = self.chance.randint(1, 3), []
        before = max((ts for _, ts in self.outside.sent[stream]), default=self.clock.now - SECOND)
        for _ in range(count):
            behind = self.chance.randint(0, SECOND) if stream == "e" else 0
            latest = min(max(before, self.clock.now - self.chance.randint(0, SECOND // 4)), self.clock.now)
            ts = max(latest - behind, 0)
            before = max(before, ts)
            values = (self.chance.randint(0, 4), self.chance.randint(0, 10), self.clock.now)
            since = ts - self.chance.randint(0, SECOND)
            rows.append({"c": values, "f": (*values, ts, since)}.get(stream, (*values, ts)))
            self.outside.sent[stream].append((self.clock.now, self.clock.now if stream == "c" else ts))
        feed_rows(self.mill, stream, rows)

    def live(self, steps: int) -> None:
        for stream in STREAMS:
            self.send(stream)
        self.mill.dispatcher.run_all()  # the warm-up
        self.clock.now += 1_000
        for _ in range(steps):
            self.clock.now += self.chance.choice([1_000, 40_000, 300_000, 900_000])
            for stream in self.chance.sample(STREAMS, self.chance.randint(0, 3)):
                self.send(stream)
            feed_rows(self.mill, "d", [])  # a polled source without rows is silent
            happens = self.chance.random()
            if happens < 0.3:
                self.mill.dispatcher.run_some()
            elif happens < 0.6:
                self.mill.dispatcher.run_all()
        self.clock.now += 500_000
        finish_at(self)

    def seen(self, name: str) -> Seen:
        found = Seen()
        for ts, row, at, ideal in self.results[name]:
            if name in CAUSED:
                due = float(row["sent"])
                if name == "in_order":
                    due = max(due, self.outside.after_slack(ts))
            else:
                _, streams, release = RELEASED[name]
                due = self.outside.due(streams, release(ts, row))
            found.due.append(due / SECOND)
            found.at.append(at / SECOND)
            found.ideal.append(ideal)
        return found


def finish_at(world: World) -> None:
    """End the streams now; their remaining rows are read a little later."""
    world.mill.dispatcher.run_all()
    world.outside.ended = world.clock.now
    world.mill.dispatcher.end_streams()
    world.mill.dispatcher.run_all()


def missing(intervals: Sequence[tuple[float, float]]) -> float:
    """Return the time during which at least one result was due but missing."""
    total, until = 0.0, -math.inf
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@pytest.mark.parametrize("seed", range(3))
def test_every_metric_agrees_with_the_observer(seed: int, tmp_path: Path) -> None:
    world = World(tmp_path, seed)
    with world.mill as mill:
        world.live(steps=50)
        for name in (*CAUSED, *RELEASED):
            check(mill, name, world.seen(name), now_s=world.clock.now / SECOND)
        for stream, sent in world.outside.sent.items():
            counts = mill.streams[stream].counts
            assert counts.read == len(sent)
            assert counts.read == counts.rows + counts.unneeded + counts.late
            assert mill.metrics().plain()["streams"][stream]["read"] == len(sent)


def check(mill: Mill, name: str, seen: Seen, now_s: float) -> None:
    metrics = mill.queries[name].metrics()
    # Only the engine knows when its tasks were warm.
    running = mill.dispatcher.running
    warm_s = running.warm_us(running.writers[name], 0) / SECOND
    assert seen.at, name
    assert metrics.rows == len(seen.at), name
    warm = [due > warm_s for due in seen.due]
    assert metrics.warm_up.count == warm.count(False), name
    responses = [at - due for at, due, is_warm in zip(seen.at, seen.due, warm, strict=True) if is_warm]
    found = metrics.figures.response
    assert found.count == len(responses), name
    assert found.largest == pytest.approx(max(responses), abs=2e-6), name
    assert found.total == pytest.approx(sum(responses), abs=1e-5 * len(responses)), name
    for share in (0.5, 0.95, 0.99):
        assert metrics.responses.at(share) == pytest.approx(
            quantile(responses, share), rel=0.011, abs=2e-6
        ), name
    slowdowns = [
        1 + (at - due - ideal.last_s) / ideal.whole_s
        for at, due, ideal, is_warm in zip(seen.at, seen.due, seen.ideal, warm, strict=True)
        if is_warm and ideal.whole_s > 0
    ]
    assert metrics.figures.slowdown.count == len(slowdowns), name
    assert metrics.figures.slowdown.total == pytest.approx(sum(slowdowns), rel=1e-4), name
    late = [max(0.0, response - 0.7) for response in responses]
    assert metrics.figures.tardiness.total == pytest.approx(sum(late), abs=1e-5 * len(late)), name
    level = quantile(responses, 0.95)
    if abs(level - 0.7) > 0.01:
        assert metrics.met is (level < 0.7), name
    stale = missing(list(zip(seen.due, seen.at, strict=True))) / (now_s - BEGAN / SECOND)
    assert metrics.staleness == pytest.approx(stale, abs=1e-5), name


def test_a_wait_for_an_upstream_task_that_starts_is_warm_up(tmp_path: Path) -> None:
    """A union has run over one stream; rows of its other input wait for the compilation of another task."""
    clock = Clock(BEGAN)
    with fed_mill(tmp_path, clock, inline_pool()) as mill:
        mill.execute(SCRIPT + "CREATE QUERY q AS SELECT sent FROM b UNION ALL SELECT sent FROM few;")
        mill.execute("CREATE QUERY other AS SELECT sent FROM few WHERE k < 3;")
        mill.open()
        union = mill.dispatcher.running.writers["q"]
        assert union.plan.task.inputs == ("b", "few")
        for second in (1, 2, 3):
            clock.now = BEGAN + second * SECOND
            for stream in "ab":
                feed_rows(mill, stream, [(1, 9, clock.now, clock.now)])
            if second < 3:
                with mill.dispatcher.paused():
                    mill.dispatcher.catch_up(union)
        mill.dispatcher.run_all()
        metrics = mill.queries["q"].metrics()
        assert metrics.warm_up.count == metrics.rows >= 5
        assert metrics.figures.response.count == 0
        clock.now += SECOND
        feed_rows(mill, "a", [(1, 9, clock.now, clock.now)])
        feed_rows(mill, "b", [(1, 9, clock.now, clock.now)])
        mill.dispatcher.run_all()
        assert (metrics.warm_up.count, metrics.figures.response.largest) == (6, 0.0)
        assert metrics.rows >= 7
