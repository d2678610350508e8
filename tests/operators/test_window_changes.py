"""Late tuples in windows: the table is that of all tuples that came in time for each window."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.columns.rows import plain_rows
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
LENGTH, SLIDE, LATE = 4, 2, 3
SCRIPT = f"""
CREATE STREAM s (k varchar, v int, ts timestamp) ORDER BY ts;
CREATE QUERY corrected AS SELECT k, sum(v) AS v, window_end() AS w
  FROM s [RANGE {LENGTH} SECONDS SLIDE {SLIDE} SECONDS] GROUP BY k
  EMIT EARLY EVERY 1 SECOND LATE {LATE} SECONDS;
CREATE QUERY plain AS SELECT k, sum(v) AS v, window_end() AS w
  FROM s [RANGE {LENGTH} SECONDS SLIDE {SLIDE} SECONDS] GROUP BY k;
"""

# When a tuple comes, in half seconds after the one before it, and how much earlier its timestamp is.
arrivals = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 4), st.sampled_from((0, 0, 1, 3, 6, 9))
    ),
    min_size=1,
    max_size=14,
)


def expected(tuples: list[tuple[str, int, int, int]], late: bool) -> Counter[tuple[object, ...]]:
    """By group and window the sum over its tuples: in time, or late by no more than is allowed."""
    sums: Counter[tuple[str, int]] = Counter()
    newest = 0
    for k, v, ts, now in tuples:
        in_time, newest = ts >= newest, max(newest, ts)
        end = (ts // (SLIDE * SECOND) + 1) * SLIDE * SECOND
        while end - LENGTH * SECOND <= ts:
            if in_time or (late and end + LATE * SECOND > now):
                sums[k, end] += v
            end += SLIDE * SECOND
    return Counter((k, v, end) for (k, end), v in sums.items())


@settings(max_examples=15)
@given(arrivals, st.integers(0, 2**32))
def test_the_table_has_all_that_came_in_time_for_its_windows(
    drawn: list[tuple[str, int, int, int]], seed: int
) -> None:
    now, tuples = 10 * SECOND, []
    for k, v, later, earlier in drawn:
        now += later * SECOND // 2
        tuples.append((k, v, now - earlier * SECOND // 2, now))
    chooser, clock, pool = random.Random(seed), Clock(), inline_pool()
    with tempfile.TemporaryDirectory() as folder:
        mill = fed_mill(Path(folder), clock, pool)
        mill.execute(SCRIPT)
        mill.open()
        for k, v, ts, arrival in tuples:
            clock.now = arrival
            feed_rows(mill, "s", [(k, v, ts)])
            if chooser.random() < 0.5:
                mill.dispatcher.run_all()
            if chooser.random() < 0.1:
                mill.close(checkpoint=chooser.random() < 0.5)
                mill = fed_mill(Path(folder), clock, pool)
                mill.execute(SCRIPT)
                mill.open()
        finish(mill)
        for name, late in (("corrected", True), ("plain", False)):
            query = mill.queries[name]
            assert query.error is None, query.error
            assert Counter(plain_rows(query.table(), query.schema.own)) == expected(tuples, late), name
        mill.close()
