"""Adaptation to a rate that doubles, in virtual time."""

from __future__ import annotations

import pytest

from slicemill_lab.bench.follow import BOUND, followed

pytestmark = pytest.mark.every_commit  # compares results of the product


@pytest.mark.slow_cpu
def test_the_engine_adapts_to_a_rate_that_doubles() -> None:
    adapted = followed(adapting=True, third_s=9, step_s=0.2)
    assert adapted.subtasks > 1
    assert adapted.ratio <= BOUND
    # Results are late until the engine has measured the load and adapted.
    assert adapted.p99_s[1] > adapted.p99_s[2]
