"""A rate that doubles is followed, in virtual time."""

from __future__ import annotations

import pytest

from slicemill_lab.bench.follow import BOUND, followed

pytestmark = pytest.mark.every_commit  # it compares results of the product


@pytest.mark.slow_cpu
def test_a_rate_that_doubles_is_followed() -> None:
    adapted = followed(adapting=True, third_s=9, step_s=0.2)
    assert adapted.subtasks > 1
    assert adapted.ratio <= BOUND
    # In between it is late: what has to be done about it is seen first.
    assert adapted.p99_s[1] > adapted.p99_s[2]
