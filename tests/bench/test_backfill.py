"""Live results beside a backfill, in virtual time."""

from __future__ import annotations

import pytest

from slicemill_lab.bench.backfill import BOUND, played

pytestmark = pytest.mark.every_commit  # compares results of the product


@pytest.mark.slow_cpu
def test_a_backfill_does_not_delay_live_queries() -> None:
    beside = played(backfill=True, past_s=3, most_s=30)
    alone = played(backfill=False, past_s=3, most_s=beside.backfill_s)
    assert beside.same
    assert beside.results == alone.results
    assert beside.p99_s <= BOUND * alone.p99_s
    assert beside.backfill_s < 3
