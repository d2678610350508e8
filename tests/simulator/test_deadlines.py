"""Aggregate instants with deadlines (P24, P25)."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slicemill_lab.simulator.deadlines import DeadlineRule, Instant, play


def test_golden_g12_the_hybrid_is_the_best_of_three_rules() -> None:
    instants = [Instant(1, 100), Instant(4, 1), Instant(10, 0.5), Instant(2, 9)]
    assert play(instants, DeadlineRule.EDF) == ([2, 1, 3, 0], 29.5)
    assert play(instants, DeadlineRule.HIGHEST_RATE) == ([0, 3, 1, 2], 22.5)
    assert play(instants, DeadlineRule.HYBRID) == ([1, 3, 2, 0], 18.5)
    totals = []
    for order in permutations(instants):
        now = late = 0.0
        for instant in order:
            now += instant.cost
            late += max(0.0, now - instant.deadline)
        totals.append(late)
    assert min(totals) == 18.5


INSTANTS = st.lists(
    st.tuples(st.floats(1, 10), st.floats(0, 25)).map(lambda p: Instant(*p)), min_size=1, max_size=6
)


@given(INSTANTS)
def test_the_hybrid_equals_edf_if_all_are_in_time_and_highest_rate_if_all_are_late(
    instants: list[Instant],
) -> None:
    timely = [Instant(i.cost, 1000 + i.deadline) for i in instants]
    late = [Instant(i.cost, -1 - i.deadline) for i in instants]
    assert play(timely, DeadlineRule.HYBRID) == play(timely, DeadlineRule.EDF)
    assert play(late, DeadlineRule.HYBRID) == play(late, DeadlineRule.HIGHEST_RATE)


def test_over_many_sets_the_hybrid_is_near_the_optimum() -> None:
    random = np.random.default_rng(7)
    sums = dict.fromkeys(DeadlineRule, 0.0)
    worse_than_both = 0
    for _ in range(300):
        jobs = [
            Instant(c, d) for c, d in zip(random.uniform(1, 10, 6), random.uniform(0, 25, 6), strict=True)
        ]
        late = {rule: play(jobs, rule)[1] for rule in DeadlineRule}
        worse_than_both += (
            late[DeadlineRule.HYBRID] > max(late[DeadlineRule.EDF], late[DeadlineRule.HIGHEST_RATE]) + 1e-9
        )
        for rule, value in late.items():
            sums[rule] += value
    assert worse_than_both == 0
    assert sums[DeadlineRule.HYBRID] < 0.9 * min(sums[DeadlineRule.EDF], sums[DeadlineRule.HIGHEST_RATE])
