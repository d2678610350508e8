"""Cells move from busy workers to idle ones: when, which, and that it comes to rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slicemill.scheduling.balance import Balancer, Move, SubtaskId, best_move

SUBTASKS = st.dictionaries(
    st.tuples(st.sampled_from(["join", "sums"]), st.integers(0, 7)),
    st.tuples(st.floats(0, 1), st.integers(0, 3)),
    max_size=16,
)


def totals(loads: dict[SubtaskId, float], at: dict[SubtaskId, int], workers: int) -> list[float]:
    found = [0.0] * workers
    for subtask, worker in at.items():
        found[worker] += loads[subtask]
    return found


@given(SUBTASKS)
def test_a_move_makes_the_busiest_less_busy_and_the_target_no_busier_than_it_was(
    subtasks: dict[SubtaskId, tuple[float, int]],
) -> None:
    loads, at = (
        {c: load for c, (load, _) in subtasks.items()},
        {c: worker for c, (_, worker) in subtasks.items()},
    )
    before = totals(loads, at, 4)
    move = best_move(loads, at, dict.fromkeys(range(4), 0.0))
    if move is None:
        return
    source = at[move.subtask]
    assert before[source] == max(before) and before[move.worker] == min(before)
    after = totals(loads, at | {move.subtask: move.worker}, 4)
    assert max(after[source], after[move.worker]) < before[source]


@given(SUBTASKS)
def test_steady_loads_come_to_rest(subtasks: dict[SubtaskId, tuple[float, int]]) -> None:
    loads, at = (
        {c: load for c, (load, _) in subtasks.items()},
        {c: worker for c, (_, worker) in subtasks.items()},
    )
    balancer, moved_last = Balancer(), 0
    for look in range(600):
        move = balancer.decide(loads, at, dict.fromkeys(range(4), 0.0))
        if move is not None:
            at[move.subtask], moved_last = move.worker, look
    assert moved_last < 500
    spread = totals(loads, at, 4)
    # What is left is even, or nothing that the busiest has would make it much more so.
    gap = max(spread) - min(spread)
    own = [loads[subtask] for subtask, worker in at.items() if worker == spread.index(max(spread))]
    assert gap <= 0.15 or all(abs(gap - 2 * load) > 0.8 * gap for load in own)


def test_a_new_worker_gets_its_share() -> None:
    loads = {("join", subtask): 0.2 for subtask in range(8)}
    at = dict.fromkeys(loads, 0)
    balancer = Balancer()
    fixed = {0: 0.0}
    for look in range(400):
        if look == 50:
            fixed[1] = 0.0
        move = balancer.decide(loads, at, fixed)
        if move is not None:
            assert look >= 50 and move.worker == 1
            at[move.subtask] = move.worker
    assert sorted(at.values()) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_burst_moves_nothing() -> None:
    at = {("join", 0): 0, ("join", 1): 0, ("join", 2): 1}
    balancer = Balancer()
    for look in range(100):
        busy = 0.6 if look % 3 else 0.1  # never three looks in a row
        loads = {("join", 0): busy, ("join", 1): 0.1, ("join", 2): 0.1}
        assert balancer.decide(loads, at, {0: 0.0, 1: 0.0}) is None


def test_the_subtask_that_fits_best_moves() -> None:
    at = {("a", 0): 0, ("a", 1): 0, ("a", 2): 0}
    loads = {("a", 0): 0.05, ("a", 1): 0.3, ("a", 2): 0.25}
    assert best_move(loads, at, {0: 0.0, 1: 0.0}) == Move(("a", 1), 1, at_once=False)


def test_a_worker_that_is_full_gives_up_at_once() -> None:
    at = {("a", 0): 0, ("a", 1): 0}
    loads = {("a", 0): 0.3, ("a", 1): 0.3}
    assert best_move(loads, at, {0: 0.3, 1: 0.0}) == Move(("a", 0), 1, at_once=True)


def test_one_heavy_subtask_stays_where_it_is() -> None:
    assert best_move({("a", 0): 0.9}, {("a", 0): 0}, {0: 0.0, 1: 0.0}) is None


def test_reading_counts_and_does_not_move() -> None:
    at = {("a", 0): 0, ("a", 1): 0}
    loads = {("a", 0): 0.1, ("a", 1): 0.1}
    assert best_move(loads, at, {0: 0.0, 1: 0.5}) is None
    assert best_move(loads, at, {0: 0.5, 1: 0.0}) == Move(("a", 0), 1, at_once=False)
