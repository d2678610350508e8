"""Sums of many bits: exact, and rounded as fractions are."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregate.exact import limbs as wide


def numbers(random: Random) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    spread = random.choice([0, 5, 20, 30])
    return np.array(
        [
            random.choice(
                [
                    0.0,
                    1.0,
                    -1.0,
                    random.randint(-5, 5) / 4,
                    random.uniform(-1, 1) * 2.0 ** random.randint(-spread, spread),
                ]
            )
            for _ in range(random.randint(1, 30))
        ]
    )


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_sums_averages_and_variances_are_those_of_fractions(seed: int) -> None:
    random = Random(seed)
    values = numbers(random)
    counted = np.array([random.random() < 0.9 for _ in values])
    low, high = wide.exponent_range(values, counted)
    assert high - low + 5 <= wide.SUM_BITS
    limbs = wide.limbs_of_doubles(values, counted, low)
    exact = [
        Fraction(v) if c else Fraction(0) for v, c in zip(values.tolist(), counted.tolist(), strict=True)
    ]
    assert [unit * Fraction(2) ** low for unit in wide.ints_of(limbs)] == exact
    sums, squares = wide.prefix_sums(limbs), wide.prefix_sums(wide.squares(limbs))
    starts, ends = np.arange(len(values)) // 2, np.arange(len(values)) + 1
    counts = np.maximum(1, [int(counted[s:e].sum()) for s, e in zip(starts, ends, strict=True)])
    means = wide.quotients(sums, starts, ends, counts, low)
    spread = [wide.variances(sums, squares, starts, ends, counts, bias, low) for bias in (0, 1)]
    for i, (start, end, n) in enumerate(zip(starts.tolist(), ends.tolist(), counts.tolist(), strict=True)):
        total, squared = sum(exact[start:end]), sum(x * x for x in exact[start:end])
        assert means[i] == float(total / n)
        for bias in (0, 1):
            right = float(Fraction(n * squared - total * total) / (n * (n - bias))) if n > bias else 0.0
            assert spread[bias][i] == right


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_whole_numbers_keep_all_their_digits(values: list[int]) -> None:
    limbs = wide.limbs_of_integers(np.array(values, np.int64), np.ones(len(values), np.bool_))
    assert wide.ints_of(limbs) == values
    ends = np.array([len(values)])
    assert wide.ints_of(wide.differences(wide.prefix_sums(limbs), ends * 0, ends)) == [sum(values)]


@given(st.integers(-(2**127), 2**127 - 1))
def test_numbers_go_to_limbs_and_back(number: int) -> None:
    assert wide.ints_of(wide.limbs_of_int(number, wide.SUM_LIMBS)[None, :]) == [number]


def test_results_at_the_ends_of_doubles_are_left_to_the_reference() -> None:
    for value in (5e-324, 1e308):
        values = np.array([value, value])
        counted = np.ones(2, np.bool_)
        low, _ = wide.exponent_range(values, counted)
        sums = wide.prefix_sums(wide.limbs_of_doubles(values, counted, low))
        assert np.isnan(wide.quotients(sums, np.array([0]), np.array([2]), np.array([3]), low))[0]
