"""Temporal queries with little memory: fragments of the exact runs, and an accuracy that is true."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.catalog.queries import Budget, Slot
from slicemill.operators.temporal.rows import SheddingCoalesce, TemporalQuery
from slicemill.shedding.accuracy import accuracy
from slicemill.shedding.methods import METHODS
from slicemill.types import Row, Timed
from slicemill_oracle.operators.coalesce import CoalesceOperator
from support.stored import stored


def first(row: Row) -> Row:
    return row[:1]


def second(row: Row) -> Row:
    return row[1:2]


def chosen(row: Row) -> bool:
    return bool(row[2])


def everything(_: Row) -> bool:
    return True


def tuples(random: Random, count: int) -> list[Timed]:
    ts, out = 0, []
    for _ in range(count):
        ts += random.choice([0, 1, 1, 2, 5])
        value = random.choice(["a", "a", "b", float("nan"), -0.0, 0.0])
        out.append(Timed(ts, (random.choice([1, 2]), value, random.random() < 0.9)))
    return out


def exact(extent: int | None, slide: int, by_rows: bool) -> CoalesceOperator:
    return CoalesceOperator(TemporalQuery(second, first, first, extent, slide, by_rows, chosen))


def shedding(extent: int | None, slide: int, by_rows: bool, budget: Budget) -> SheddingCoalesce:
    return SheddingCoalesce(
        TemporalQuery(second, first, first, extent, slide, by_rows, chosen), budget, everything
    )


def run(operator: CoalesceOperator | SheddingCoalesce, stream: list[Timed]) -> list[str]:
    out = [made for timed in stream for made in operator.process(0, timed)]
    # Partitions come in any order.
    return [repr(timed) for timed in sorted([*out, *operator.finish()], key=lambda t: (t.ts, repr(t.row)))]


windows = st.tuples(st.sampled_from([None, 1, 4, 9, 20]), st.sampled_from([1, 3, 7]), st.booleans())


@settings(max_examples=50)
@given(st.integers(0, 10**6), windows, st.sampled_from(sorted(METHODS)))
def test_with_room_for_all_nothing_is_lost(
    seed: int, window: tuple[int | None, int, bool], method: str
) -> None:
    stream = tuples(Random(seed), 40)
    operator = shedding(*window, Budget(40, method=method, threshold=3))
    assert run(operator, stream) == run(exact(*window), stream)
    assert operator.report.dropped == 0
    assert operator.report.accuracy == 1


@settings(max_examples=50)
@given(st.integers(0, 10**6), windows, st.sampled_from(sorted(METHODS)), st.integers(1, 6))
@example(5, (None, 3, False), "lookahead", 2)
def test_fragments_lie_inside_the_runs_and_no_more_is_kept_than_allowed(
    seed: int, window: tuple[int | None, int, bool], method: str, capacity: int
) -> None:
    stream = tuples(Random(seed), 40)
    operator = shedding(*window, Budget(capacity, method=method, threshold=3))
    reference = exact(*window)
    for timed in stream:
        check(operator.process(0, timed), reference.process(0, timed))
        assert operator._memory.held <= capacity
    check(operator.finish(), reference.finish())
    assert 0 <= operator.report.accuracy <= 1


def check(fragments: list[Timed], runs: list[Timed]) -> None:
    for ts, row in fragments:
        assert any(
            ts == run.ts
            and repr(row[:-1]) == repr(run.row[:-1])
            and run.row[-1][0] <= row[-1][0] < row[-1][1] <= run.row[-1][1]
            for run in runs
        )


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(sorted(METHODS)))
def test_accuracy_is_that_of_the_results(seed: int, capacity: int, method: str) -> None:
    """Windows that never lose a tuple, one report: what it says can be computed from both results."""
    stream = tuples(Random(seed), 30)
    operator = shedding(None, 10_000, False, Budget(capacity, method=method, threshold=3))
    reference = exact(None, 10_000, False)
    for timed in stream:
        operator.process(0, timed)
        reference.process(0, timed)
    found, runs = operator.finish(), reference.finish()
    periods = {number: timed.row[-1] for number, timed in enumerate(runs)}
    left: dict[int, list[tuple[int, int]]] = {}
    for timed in found:
        (number,) = [
            n
            for n, one in enumerate(runs)
            if one.row[0] == timed.row[0] and periods[n][0] <= timed.row[-1][0] < periods[n][1]
        ]
        left.setdefault(number, []).append(timed.row[-1])
    assert operator.report.accuracy == pytest.approx(float(accuracy(periods, left)))


@settings(max_examples=30)
@given(st.integers(0, 10**6), windows, st.sampled_from(sorted(METHODS)), st.sampled_from(Slot))
def test_a_restart_changes_nothing(
    seed: int, window: tuple[int | None, int, bool], method: str, slot: Slot
) -> None:
    if slot is Slot.RUNS:
        window, method = (window[0], window[1], False), "lookahead"
    stream = tuples(Random(seed), 40)
    budget = Budget(3, slot, method, 3)
    expected = shedding(*window, budget)
    rows = run(expected, stream)
    operator = shedding(*window, budget)
    begun = [repr(made) for timed in stream[:20] for made in operator.process(0, timed)]
    kept = stored(operator.state())
    operator = shedding(*window, budget)
    operator.restore(kept)
    assert sorted(begun + run(operator, stream[20:])) == sorted(rows)
    assert operator.report == expected.report


def test_only_wanted_runs_count_for_accuracy() -> None:
    """Runs of one second are dropped first where only longer ones are asked for: nothing is lost."""
    values = [value for number in range(20) for value in ("long", "long", "long", str(number))]
    stream = [Timed(10 * index, (1, value, True)) for index, value in enumerate(values)]

    def wanted(row: Row) -> bool:
        begin, end = row[-1]  # type: ignore[misc]
        return bool(end - begin >= 20)  # type: ignore[has-type]

    budget = Budget(40, method="threshold", threshold=20)
    operator = SheddingCoalesce(TemporalQuery(second, first, first, 400, 100), budget, wanted)
    run(operator, stream)
    assert operator.report.dropped == 0
    small = Budget(30, method="threshold", threshold=20)
    operator = SheddingCoalesce(TemporalQuery(second, first, first, 400, 100), small, wanted)
    run(operator, stream)
    assert operator.report.dropped > 0
    assert operator.report.accuracy > 0.97


@pytest.mark.parametrize("by_rows", [True, False])
def test_the_report_knows_what_the_window_would_hold(by_rows: bool) -> None:
    operator = shedding(40, 10, by_rows, Budget(20))
    for ts in range(200):
        operator.process(0, Timed(ts, (1, ts // 4, True)))
    assert (operator.report.memory_ratio, operator.report.coalescing) == (0.5, 0.75)
    assert 0.5 < operator.report.accuracy < 1
