"""L9-L13: golden values of Example 4 with the erratum, the four cases of L10, and PQI."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shed_streams import accuracy_of, closed, exact_runs, fragments

from slicemill.shedding.accuracy import accuracy, covered_share, jaccard, preference, similarity
from slicemill.shedding.memory import cost
from slicemill.shedding.methods import METHODS

EXAMPLE_4 = closed(["a", 83, 83, 83, "b"], [1, 4, 7, 10, 13, 16])


@pytest.mark.parametrize(
    ("dropped", "split", "lost", "values", "combined"),
    [
        (0, 0, Fraction(1), Fraction(2, 3), Fraction(2, 3)),
        (1, 0, Fraction(1, 3), Fraction(1), Fraction(8, 9)),  # printed as 2.6/3: 8/3 truncated
        (
            2,
            1,
            Fraction(1, 3),
            Fraction(3, 4),
            Fraction(2, 3),
        ),  # printed as 2.6/4, as if it were the lowest value
        (3, 0, Fraction(1, 3), Fraction(1), Fraction(8, 9)),
        (4, 0, Fraction(1), Fraction(2, 3), Fraction(2, 3)),
    ],
)
def test_example_4_has_the_corrected_costs_of_each_drop(
    dropped: int, split: int, lost: Fraction, values: Fraction, combined: Fraction
) -> None:
    found, inner = cost(EXAMPLE_4, dropped, None, METHODS["cals"])
    assert found == pytest.approx(split + float(lost)) and inner == bool(split)
    kept = [one for one in EXAMPLE_4 if one.number != dropped]
    exact, left = exact_runs(EXAMPLE_4), fragments(kept)
    assert exact == {0: (1, 4), 1: (4, 13), 2: (13, 16)}
    assert jaccard([len(left.get(run, ())) for run in exact]) == values
    assert accuracy(exact, left) == combined


@pytest.mark.parametrize(
    ("values", "dropped", "expected"),
    [
        ("ab", None, {0: [(0, 1)], 1: [(1, 2)]}),  # untouched
        ("ab", 0, {1: [(1, 2)]}),  # vanishes
        ("aab", 0, {0: [(1, 2)], 1: [(2, 3)]}),  # gets shorter
        ("aaa", 1, {0: [(0, 1), (2, 3)]}),  # splits
    ],
)
def test_a_dropped_tuple_removes_shortens_or_splits_its_run(
    values: str, dropped: int | None, expected: dict[int, list[tuple[int, int]]]
) -> None:
    tuples = closed(values, list(range(len(values) + 1)))
    assert fragments([one for one in tuples if one.number != dropped]) == expected


@pytest.mark.parametrize(
    ("x", "y", "similar", "relation"),
    [
        ((0, 4), (2, 6), Fraction(1, 3), "Q"),
        ((0, 6), (2, 4), Fraction(1, 3), "I"),
        ((0, 1), (2, 3), Fraction(0), "P"),
        ((0, 5), (0, 5), Fraction(1), "I"),
        ((0, 2), (2, 3), Fraction(0), "P"),
        ((0, 5), (0, 2), Fraction(2, 5), "I"),
    ],
)
def test_intervals_compare_as_in_a_pqi_order(
    x: tuple[int, int], y: tuple[int, int], similar: Fraction, relation: str
) -> None:
    assert similarity(x, y) == similarity(y, x) == similar
    assert preference(x, y) == preference(y, x) == relation


def test_an_empty_result_is_exact_if_none_was_expected() -> None:
    assert accuracy({}, {}) == 1 == jaccard([])
    assert accuracy({}, {3: [(0, 1)]}) == 0


def test_a_fragment_whose_run_was_not_selected_is_a_false_positive() -> None:
    assert accuracy({1: (0, 2)}, {1: [(0, 2)], 2: [(5, 6)]}) == Fraction(1, 2)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans()), min_size=1, max_size=20))
def test_fragments_lie_inside_their_runs_and_accuracy_is_between_0_and_1(
    rows: list[tuple[str, int, bool]],
) -> None:
    times = [0]
    for _, gap, _ in rows:
        times.append(times[-1] + gap)
    tuples = closed([value for value, _, _ in rows], times)
    kept = [one for one, (_, _, keep) in zip(tuples, rows, strict=True) if keep]
    exact, left = exact_runs(tuples), fragments(kept)
    for run, pieces in left.items():
        assert all(exact[run][0] <= begin < end <= exact[run][1] for begin, end in pieces)
        assert covered_share(exact[run], pieces) <= 1
    found = accuracy_of(tuples, kept)
    assert 0 <= found <= 1 and (found == 1) == (len(kept) == len(tuples))
