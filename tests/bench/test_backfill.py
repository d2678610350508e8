"""Live results beside a query that reads the past, in virtual time."""

from __future__ import annotations

import pytest

from slicemill_lab.bench.backfill import BOUND, played

pytestmark = pytest.mark.every_commit  # it compares results of the product


@pytest.mark.slow_cpu
def test_a_query_that_reads_the_past_does_not_hurt_live_ones() -> None:
    beside = played(backfill=True, past_s=3, most_s=30)
    alone = played(backfill=False, past_s=3, most_s=beside.backfill_s)
    assert beside.same
    assert beside.results == alone.results
    assert beside.p99_s <= BOUND * alone.p99_s
    assert beside.backfill_s < 3
