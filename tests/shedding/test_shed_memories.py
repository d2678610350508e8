"""Shedding memories such as CALS: traces by hand, the fast form against the definition, and invariants."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shed_streams import accuracy_of, closed, copy, feed, fragments

from slicemill.catalog.queries import Budget, Slot
from slicemill.shedding.memory import (
    ChainMemory,
    FastMemory,
    NewestTuple,
    OriginalRunMemory,
    RandomMemory,
    RunMemory,
    ScanMemory,
    Tuple,
    memory_of,
)
from slicemill.shedding.methods import METHODS, Method, TieBreak, method_of
from support.stored import stored

EXAMPLE_4 = closed(["a", 83, 83, 83, "b"], [1, 4, 7, 10, 13, 16])
FORMS = (ScanMemory, FastMemory)


@pytest.mark.parametrize("form", FORMS)
def test_example_4_has_the_expected_drops_and_accuracy(form: type[ScanMemory | FastMemory]) -> None:
    method = replace(METHODS["cals"], ties=TieBreak.OLDEST)
    three = form(3, method)
    assert feed(three, EXAMPLE_4) == [None, None, None, 1, 2]
    assert accuracy_of(EXAMPLE_4, three.kept("p")) == Fraction(7, 9)
    four = form(4, method)
    assert feed(four, EXAMPLE_4) == [None, None, None, None, 1]
    assert accuracy_of(EXAMPLE_4, four.kept("p")) == Fraction(8, 9)


@pytest.mark.parametrize("form", FORMS)
def test_without_look_ahead_a_growing_run_is_cut_at_its_end(form: type[ScanMemory | FastMemory]) -> None:
    tuples = closed("aaaa", [0, 1, 2, 3, 4])
    literal = form(2, replace(METHODS["cals"], ties=TieBreak.NEWEST))
    assert feed(literal, tuples)[2] == 2
    assert feed(form(2, replace(METHODS["lookahead"], ties=TieBreak.NEWEST)), tuples)[2] == 0


@pytest.mark.parametrize("name", METHODS)
def test_no_tuple_is_dropped_while_memory_is_free(name: str) -> None:
    memory = memory_of(Budget(5, method=name))
    assert feed(memory, EXAMPLE_4) == [None] * 5
    assert accuracy_of(EXAMPLE_4, memory.kept("p")) == 1


@pytest.mark.parametrize("name", ["cals", "lookahead", "interval", "random"])
def test_with_distinct_values_accuracy_is_the_share_of_memory(name: str) -> None:
    random = Random(5)
    times = [0]
    for _ in range(300):
        times.append(times[-1] + random.randint(1, 10))
    tuples = closed(list(range(300)), times)
    memory = memory_of(Budget(50, method=name))
    feed(memory, tuples, window=100)
    assert accuracy_of(tuples[-100:], memory.kept("p")) == Fraction(len(memory.kept("p")), 100)
    assert memory.held == 50


def test_with_equal_values_one_fragment_is_left() -> None:
    tuples = closed("a" * 200, list(range(201)))
    memory = memory_of(Budget(60))
    feed(memory, tuples, window=100)
    assert [len(pieces) for pieces in fragments(memory.kept("p")).values()] == [1]
    assert accuracy_of(tuples[-100:], memory.kept("p")) == Fraction(60, 100)


def test_greedy_choices_are_close_to_the_optimum() -> None:
    worst = 1.0
    for seed in range(12):
        random = Random(seed)
        values, times = [0], [0]
        for _ in range(11):
            values.append(values[-1] if random.random() < (0.3, 0.7)[seed % 2] else values[-1] + 1)
        for _ in range(12):
            times.append(times[-1] + random.randint(1, 10))
        tuples = closed(values, times)
        memory = memory_of(Budget(8))
        feed(memory, tuples)
        best = max(accuracy_of(tuples, kept) for kept in combinations(tuples, 8))
        worst = min(worst, float(accuracy_of(tuples, memory.kept("p")) / best))
    assert worst >= 0.88


def test_the_threshold_method_drops_runs_that_are_too_short() -> None:
    tuples = closed("aabbbbbbcdd", list(range(12)))
    memory = memory_of(Budget(7, method="threshold", threshold=6))
    feed(memory, tuples)
    assert fragments(memory.kept("p"))[1] == [(2, 8)]


def test_a_run_slot_holds_a_long_run_in_one_slot() -> None:
    tuples = closed("aaaaabccccd", list(range(12)))
    memory = memory_of(Budget(2, Slot.RUNS))
    dropped = feed(memory, tuples)
    assert [one for one in dropped if one is not None] == [5, 10]
    assert [(one.values, one.begin, one.end, one.count) for one in memory.kept("p")] == [
        ("a", 0, 5, 5),
        ("c", 6, 10, 4),
    ]
    memory.expire("p", begin=3)
    assert memory.kept("p")[0].begin == 3
    memory.expire("p", begin=7)
    assert [one.values for one in memory.kept("p")] == ["c"]


def test_a_growing_run_is_not_dropped_while_another_run_exists() -> None:
    tuples = closed("aaabb", [0, 5, 10, 15, 16, 17])
    memory = RunMemory(1, method_of("lookahead"))
    dropped = feed(memory, tuples)
    assert [one.values for one in memory.kept("p")] == ["b"]
    assert dropped[3] is not None


# -- Fast form ------------------------------------------------------------------------------------------

arrivals = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 9)), max_size=40
)


def choices(
    memory: ChainMemory, rows: list[tuple[int, str, int, int]], restart: int | None = None
) -> list[object]:
    """Return the drops for tuples on three partitions: a value, a gap, and 0 for a tuple without a run.

    Time windows of 25 pass over the tuples.
    """
    now, run, out = 0, 0, []
    newest: dict[int, tuple[str, int, int, bool]] = {}
    for serial, (partition, value, gap, luck) in enumerate(rows):
        now += gap
        for key in range(3):
            memory.expire(key, begin=now - 25)
        wanted = luck > 0
        before = newest.get(partition)
        ended = None
        if before is not None and before[3] and before[1] < now:
            run += 1
            ended = Tuple(before[0], before[1], now, before[2], before[2], run)
        follower = NewestTuple(value, now) if wanted else None
        victim = memory.arrive(partition, ended, follower)
        out.append((serial, victim.tuple.serial if victim is not None else None))
        newest[partition] = (value, now, serial, wanted)
        if serial == restart:
            kept = stored(memory.state())
            memory = type(memory)(memory.capacity, memory.method)  # type: ignore[call-arg, attr-defined]
            memory.restore(kept)
    return out


@settings(max_examples=60)
@given(
    arrivals,
    st.integers(0, 6),
    st.sampled_from(sorted(METHODS)),
    st.sampled_from(TieBreak),
    st.integers(0, 12),
)
@example([(0, "a", 1, 1)] * 12, 3, "interval", TieBreak.RANDOM, 0)
@example([(0, "a", 4, 1)] * 5 + [(0, "b", 1, 1)] * 5, 2, "threshold", TieBreak.OLDEST, 6)
def test_the_fast_form_drops_the_same_tuples_as_the_definition(
    rows: list[tuple[int, str, int, int]], capacity: int, name: str, ties: TieBreak, threshold: int
) -> None:
    method = replace(method_of(name, threshold), ties=ties, blind=False)
    expected = choices(ScanMemory(capacity, method), rows)
    assert choices(FastMemory(capacity, method), rows) == expected
    assert choices(FastMemory(capacity, method), rows, restart=len(rows) // 2) == expected


@settings(max_examples=30)
@given(arrivals, st.integers(0, 6), st.sampled_from((Slot.RUNS, Slot.TUPLES)))
def test_a_restart_changes_no_choice(
    rows: list[tuple[int, str, int, int]], capacity: int, slot: Slot
) -> None:
    budget = Budget(capacity, slot, "random")
    assert choices(memory_of(budget), rows) == choices(memory_of(budget), rows, restart=len(rows) // 2)


def test_weights_with_a_cheap_split_need_the_scan_form() -> None:
    with pytest.raises(AssertionError):
        FastMemory(3, Method(split=0.5))


# -- Random dropping (RAND) -----------------------------------------------------------------------------


def test_random_dropping_gives_all_tuples_the_same_chance() -> None:
    kept = [0] * 20
    for seed in range(400):
        memory = RandomMemory(10, method_of("random", seed=seed))
        feed(memory, [copy(one) for one in closed(list(range(20)), list(range(21)))])
        for one in memory.kept("p"):
            kept[one.number] += 1
    for number, count in enumerate(kept):
        survived = (10 / 11) ** min(10, 20 - number)
        assert count / 400 == pytest.approx(survived, abs=0.09)


def test_accuracy_of_independent_retention_equals_the_closed_form() -> None:
    random, p, q = Random(2), 0.7, 0.6
    values, times = [0], [0]
    for _ in range(100_000):
        values.append(values[-1] if random.random() < p else values[-1] + 1)
        times.append(times[-1] + random.randint(1, 10))
    tuples = closed(values[:-1], times)
    kept = [one for one in tuples if random.random() < q]
    closed_form = q / (q + q * (1 - q) * p / (1 - p) + (1 - p) * (1 - q) / (1 - p * (1 - q)))
    assert closed_form == pytest.approx(0.452, abs=0.001)
    assert float(accuracy_of(tuples, kept)) == pytest.approx(closed_form, abs=0.01)


@pytest.mark.parametrize(
    ("weights", "form", "dropped"),
    [
        (None, FastMemory, 1),
        ((2.0, 1.0), FastMemory, 1),
        ((0.2, 1.0), ScanMemory, 2),
        ((0.0, 1.0), FastMemory, 2),
    ],
)
def test_weights_change_which_tuple_is_dropped(
    weights: tuple[float, float] | None, form: type[ChainMemory], dropped: int
) -> None:
    """A short tuple inside a run is dropped if a split weighs less than the lost time at an end."""
    memory = memory_of(Budget(3, method="cals", weights=weights))
    assert type(memory) is form
    assert feed(memory, closed("baaac", [0, 100, 104, 105, 110, 200]))[3] == dropped


def test_the_exact_method_uses_shares_of_the_original_runs() -> None:
    """Half of a run of four is left: its last tuple is half of the rest, a quarter of the original."""
    tuples = closed("aaaabbb", list(range(8)))
    near, exact = (memory_of(Budget(5, method=name)) for name in ("lookahead", "exact"))
    assert type(exact) is OriginalRunMemory
    feed(near, tuples), feed(exact, tuples)
    assert [one.values for one in near.kept("p")] == ["a", "a", "a", "b", "b"]
    assert [one.values for one in exact.kept("p")] == ["a", "a", "b", "b", "b"]


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 8), st.none() | st.integers(5, 40))
def test_original_runs_are_known_after_drops_and_expiry(seed: int, capacity: int, window: int | None) -> None:
    """In a time window, a dropped tuple begins at the earliest with the window."""
    random, times = Random(seed), [0]
    for _ in range(40):
        times.append(times[-1] + random.randint(1, 5))
    tuples = closed([random.choice("ab") for _ in range(40)], times)
    memory = memory_of(Budget(capacity, method="exact"))
    assert isinstance(memory, OriginalRunMemory)
    for place, one in enumerate(tuples):
        if window is not None:
            memory.expire("p", begin=one.end - window)
        memory.arrive("p", copy(one), None if place == 39 else NewestTuple(tuples[place + 1].values, one.end))
    horizon = 0 if window is None else times[-1] - window
    for one in memory.kept("p"):
        same = [other for other in tuples if other.run == one.run]
        begin = next(other.begin for other in same if other.begin >= horizon)
        whole = same[-1].end - begin
        assert memory._whole(one) == whole or (
            same[0].begin < horizon and one.length <= memory._whole(one) <= same[-1].end - horizon
        )
