"""Balancer: subtasks move from busy workers to idle workers, and moves end under steady load."""

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
def test_a_move_relieves_the_busiest_worker_and_does_not_overload_its_target(
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
def test_no_subtask_moves_after_some_time_of_steady_load(
    subtasks: dict[SubtaskId, tuple[float, int]],
) -> None:
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
    # The rest is even, or no subtask of the busiest worker would make it much more even.
    gap = max(spread) - min(spread)
    own = [loads[subtask] for subtask, worker in at.items() if worker == spread.index(max(spread))]
    assert gap <= 0.15 or all(abs(gap - 2 * load) > 0.8 * gap for load in own)


def test_a_new_worker_gets_its_share_of_subtasks() -> None:
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


def test_a_short_burst_moves_no_subtask() -> None:
    at = {("join", 0): 0, ("join", 1): 0, ("join", 2): 1}
    balancer = Balancer()
    for look in range(100):
        busy = 0.6 if look % 3 else 0.1  # never busy at three consecutive polls
        loads = {("join", 0): busy, ("join", 1): 0.1, ("join", 2): 0.1}
        assert balancer.decide(loads, at, {0: 0.0, 1: 0.0}) is None


def test_the_subtask_with_the_best_fit_moves() -> None:
    at = {("a", 0): 0, ("a", 1): 0, ("a", 2): 0}
    loads = {("a", 0): 0.05, ("a", 1): 0.3, ("a", 2): 0.25}
    assert best_move(loads, at, {0: 0.0, 1: 0.0}) == Move(("a", 1), 1, at_once=False)


def test_a_full_worker_gives_up_a_subtask_at_once() -> None:
    at = {("a", 0): 0, ("a", 1): 0}
    loads = {("a", 0): 0.3, ("a", 1): 0.3}
    assert best_move(loads, at, {0: 0.3, 1: 0.0}) == Move(("a", 0), 1, at_once=True)


def test_a_single_heavy_subtask_does_not_move() -> None:
    assert best_move({("a", 0): 0.9}, {("a", 0): 0}, {0: 0.0, 1: 0.0}) is None


def test_load_of_sources_counts_but_does_not_move() -> None:
    at = {("a", 0): 0, ("a", 1): 0}
    loads = {("a", 0): 0.1, ("a", 1): 0.1}
    assert best_move(loads, at, {0: 0.0, 1: 0.5}) is None
    assert best_move(loads, at, {0: 0.5, 1: 0.0}) == Move(("a", 0), 1, at_once=False)
