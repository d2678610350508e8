"""Multi-word sums: exact, and rounded once like fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from slicemill.aggregates import exact as accumulator
from slicemill.aggregates import exact as wide


def nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def numbers(random: Random) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    spread = random.choice([0, 5, 20, 30, 500])
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
def test_sums_averages_and_variances_equal_those_of_fractions(seed: int) -> None:
    random = Random(seed)
    values = numbers(random)
    counted = np.array([random.random() < 0.9 for _ in values])
    low, high = wide.exponent_range(values, counted)
    limbs = wide.limbs_of_doubles(values, counted, low, wide.limbs_for(high - low, len(values)))
    exact = [
        Fraction(v) if c else Fraction(0) for v, c in zip(values.tolist(), counted.tolist(), strict=True)
    ]
    assert [unit * Fraction(2) ** low for unit in wide.ints_of(limbs)] == exact
    sums, squares = wide.prefix_sums(limbs), wide.prefix_sums(wide.squares(limbs))
    starts, ends = np.arange(len(values)) // 2, np.arange(len(values)) + 1
    counts = np.maximum(1, [int(counted[s:e].sum()) for s, e in zip(starts, ends, strict=True)])
    means = wide.quotients(sums, starts, ends, counts, low)
    spread = [wide.variances(sums, squares, starts, ends, counts, bias, 1, low) for bias in (0, 1)]
    for i, (start, end, n) in enumerate(zip(starts.tolist(), ends.tolist(), counts.tolist(), strict=True)):
        total, squared = sum(exact[start:end]), sum(x * x for x in exact[start:end])
        assert means[i] == float(total / n)
        for bias in (0, 1):
            right = float(Fraction(n * squared - total * total) / (n * (n - bias))) if n > bias else 0.0
            assert spread[bias][i] == right


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_integer_sums_are_exact(values: list[int]) -> None:
    limbs = wide.limbs_of_integers(np.array(values, np.int64), np.ones(len(values), np.bool_))
    assert wide.ints_of(limbs) == values
    ends = np.array([len(values)])
    assert wide.ints_of(wide.differences(wide.prefix_sums(limbs), ends * 0, ends)) == [sum(values)]


@given(st.integers(-(2**127), 2**127 - 1))
def test_numbers_survive_conversion_to_limbs_and_back(number: int) -> None:
    assert wide.ints_of(wide.limbs_of_int(number, wide.WHOLE)[None, :]) == [number]


@given(
    st.integers(0, 2**300 - 1),
    st.integers(1, 2**32 - 1),
    st.integers(1, 2**32 - 1),
    st.integers(1, 2**32 - 1),
    st.integers(-1500, 1100),
)
@example(1, 2, 1, 1, -1074)
@example(3, 2, 1, 1, -1074)
@example(2**53 + 1, 1, 1, 1, 0)
@example(2**54 - 1, 1, 1, 1, 971)
@example(1, 3, 1, 1, -1070)
@example(1, 2**32 - 1, 2**32 - 1, 2**32 - 1, 0)
def test_a_quotient_is_the_nearest_double_for_every_exponent(
    number: int, first: int, second: int, third: int, exponent: int
) -> None:
    exact = Fraction(number, first * second * third) * Fraction(2) ** exponent
    limbs = wide.limbs_of_int(number, 10)
    buffer = np.empty(10 + wide.SPARE, np.uint32)
    assert wide.round_ratio(limbs, first, second, third, exponent, buffer) == nearest(exact)


_WHOLE = st.integers(-(2**150), 2**150)


@given(st.lists(_WHOLE, min_size=1, max_size=9), st.integers(1, 2**32 - 1), st.integers(0, 9))
@example([1, 2], 2, 0)
@example([-1, -2], 2, 0)
def test_means_of_decimals_are_rounded_half_away_from_zero(numbers: list[int], count: int, more: int) -> None:
    total, ends = sum(numbers), np.array([len(numbers)])
    exact = abs(Fraction(total * 10**more, count))
    expected = int(exact + Fraction(1, 2)) * (1 if total >= 0 else -1)
    assume(abs(expected) < 2**127)
    sums = wide.prefix_sums(np.stack([wide.limbs_of_int(number, 6) for number in numbers]))
    means = wide.decimal_means(sums, ends - len(numbers), ends, np.array([count]), 10**more)
    assert wide.ints_of(means) == [expected]


@given(st.lists(st.tuples(st.integers(0, 2), _WHOLE, st.booleans()), min_size=1, max_size=12))
def test_running_sums_continue_from_the_previous_sum_of_each_group(rows: list[tuple[int, int, bool]]) -> None:
    rows.sort(key=lambda row: row[0])
    groups = np.array([group for group, _, _ in rows], np.int32)
    numbers = np.stack([wide.limbs_of_int(number, 6) for _, number, _ in rows])
    wide.negate_where(numbers, np.array([leaves for _, _, leaves in rows]))
    kept = [5, -(2**140), 0]
    found = wide.running_sums(groups, numbers, np.stack([wide.limbs_of_int(each, 6) for each in kept]))
    expected = [0]
    for group, number, leaves in rows:
        kept[group] += -number if leaves else number
        expected.append(kept[group])
    assert wide.ints_of(found) == expected


@given(_WHOLE, st.integers(6, 9), st.integers(0, 3))
def test_a_number_keeps_its_value_with_more_limbs(number: int, size: int, shift: int) -> None:
    wider = wide.widen(wide.limbs_of_int(number, 6).reshape(1, -1), size + shift, shift)
    assert wide.ints_of(wider) == [number << (32 * shift)]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20), st.integers(1, 2**31))
@example([5e-324, 5e-324], 3)
@example([1.7e308, 1.7e308, -1.7e308], 1)
@example([1.7e308, 1.7e308], 1)
def test_an_accumulator_sums_all_doubles_exactly(values: list[float], count: int) -> None:
    sums = np.zeros(accumulator.CELLS, np.int64)
    for value in values:
        accumulator.add(sums, value)
    exact = sum(map(Fraction, values), Fraction(0)) / count
    assert accumulator.quotient(sums, count) == nearest(exact)
