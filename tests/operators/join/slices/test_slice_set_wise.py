"""Cuts for slices that are data: the cheapest ones, and what they keep."""

from __future__ import annotations

from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.operators.join.slices.cuts import (
    SetWiseStream,
    cheapest_cuts,
    fair_price,
    finest_cuts,
    tuple_seconds,
)

shares = st.floats(0, 1, allow_subnormal=False)


@st.composite
def streams(draw: st.DrawFn) -> SetWiseStream:
    windows = draw(st.lists(st.integers(1, 100), min_size=1, max_size=6, unique=True))
    weights = [draw(shares) + 0.01 for _ in windows]
    ending = {float(w): weight / sum(weights) for w, weight in zip(windows, weights, strict=True)}
    return SetWiseStream(ending, draw(st.floats(0, 10)), draw(st.floats(0, 50)))


def _cost(stream: SetWiseStream, keeping: float, ends: tuple[float, ...]) -> float:
    """Counted tuple by tuple: kept up to the first cut at or behind its last window, looked at at each."""
    total = 0.0
    for window, share in stream.ending.items():
        until = min(end for end in ends if end >= window)
        cuts = sum(end <= until for end in ends[:-1])
        total += share * (until * (stream.compared + keeping) + cuts * stream.rewriting)
    return total


@settings(max_examples=60)
@given(streams(), st.floats(0, 10))
def test_no_other_choice_of_cuts_costs_less(stream: SetWiseStream, keeping: float) -> None:
    *inner, last = stream.windows
    choices = chain.from_iterable(combinations(inner, size) for size in range(len(inner) + 1))
    least = min(_cost(stream, keeping, (*choice, last)) for choice in choices)
    assert _cost(stream, keeping, cheapest_cuts(stream, keeping)) <= least * (1 + 1e-9) + 1e-9


@settings(max_examples=60)
@given(streams())
def test_the_finest_cuts_keep_each_tuple_as_long_as_somebody_wants_it(stream: SetWiseStream) -> None:
    wanted = sum(window * share for window, share in stream.ending.items())
    finest = tuple_seconds(stream, finest_cuts(stream))
    assert abs(finest - wanted) < 1e-9 * wanted
    assert tuple_seconds(stream, cheapest_cuts(stream, fair_price(stream))) >= finest * (1 - 1e-9)


def test_without_selections_nothing_is_cut_and_free_writing_cuts_wherever_tuples_end() -> None:
    assert cheapest_cuts(SetWiseStream({5: 0.0, 40: 0.0, 80: 1.0}, compared=3, rewriting=8)) == (80,)
    assert cheapest_cuts(SetWiseStream({5: 0.5, 40: 0.2, 80: 0.3}, compared=3, rewriting=0)) == (5, 40, 80)


def test_a_cut_before_a_selective_query_has_to_be_worth_its_price() -> None:
    stream = SetWiseStream({75: 0.98, 80: 0.02}, compared=0.4, rewriting=8)
    assert cheapest_cuts(stream) == (80,), "five seconds of comparing are not worth going through all"
    stream = SetWiseStream({40: 0.98, 80: 0.02}, compared=0.4, rewriting=8)
    assert cheapest_cuts(stream) == (40, 80)
    seldom = SetWiseStream({40: 0.98, 80: 0.02}, compared=0.001, rewriting=8)
    assert cheapest_cuts(seldom) == (80,)
    assert cheapest_cuts(seldom, keeping=0.21) == (40, 80), "if memory is dear enough"
