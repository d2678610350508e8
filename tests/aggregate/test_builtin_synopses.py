"""Approximate aggregates: bounded errors and results that do not depend on the process (M33, M41)."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.aggregates.count import CountDistinct
from slicemill.aggregates.hashes import bits_of, mix_bits
from slicemill.aggregates.moments import Moments, MomentStatistic, total
from slicemill.aggregates.registry import BUILTINS
from slicemill.aggregates.synopses import PER_SIZE, ApproxCount, ApproxCountIf, buckets, estimate_ones
from support.stored import stored


@given(st.lists(st.none() | st.integers(0, 40) | st.text(max_size=2), max_size=60), st.integers(1, 20))
def test_an_estimated_frequency_is_never_too_low(items: list[object], window: int) -> None:
    frequency = ApproxCount()
    for index, item in enumerate(items):
        frequency.add((item,))
        if index >= window:
            frequency.remove((items[index - window],))
        content = items[max(0, index - window + 1) : index + 1]
        estimate = frequency.value()
        assert estimate is None if item is None else estimate >= content.count(item)


def test_few_items_are_counted_exactly() -> None:
    frequency, exact = ApproxCount(), Counter[object]()
    for item in [f"item {n % 7}" for n in range(100)]:
        frequency.add((item,))
        exact[item] += 1
        assert frequency.value() == exact[item]


def test_equal_values_have_equal_bits() -> None:
    assert bits_of(-0.0) == bits_of(0.0)
    assert bits_of(math.nan) == bits_of(-math.nan)
    assert bits_of(Decimal("1.50")) == bits_of(Decimal("1.5")) != bits_of(Decimal("15"))
    assert bits_of(-1) == 2**64 - 1


def test_hashes_never_change() -> None:
    assert (mix_bits(0), bits_of("item")) == (0xE220A8397B1DCDAF, 0xD8F8D8FF3CAB8A84)


@pytest.mark.parametrize("ones", [0, 1, 11, 12, 13, 100, 12345])
def test_buckets_contain_all_ones_and_the_documented_number_for_each_size(ones: int) -> None:
    found = list(buckets(ones))
    assert sum(size * count for size, count in found) == ones
    assert all(PER_SIZE <= count <= PER_SIZE + 1 for _, count in found[:-1])


def test_the_relative_error_of_a_histogram_is_bounded() -> None:
    for arrived in (1, 5, 12, 30, 57, 100, 500, 1234):
        for left in range(arrived):
            true = arrived - left
            assert abs(estimate_ones(arrived, left) - true) <= true / (PER_SIZE + 2)
        assert estimate_ones(arrived, arrived) == 0
        assert estimate_ones(arrived, 0) == arrived


def test_only_true_counts_as_a_one() -> None:
    ones = ApproxCountIf()
    for value in (True, False, None, True):
        ones.add((value,))
    assert ones.value() == 2
    ones.remove((True,))
    assert ones.value() == 1


def test_a_restored_state_still_recognises_its_nan() -> None:
    def moments() -> MomentStatistic:
        return MomentStatistic(Moments(1), total)

    for make, left in ((CountDistinct, 0), (moments, None)):
        before = make()
        before.add((math.nan,))
        statistic = make()
        statistic.restore(stored(before.state()))
        statistic.remove((math.nan,))
        assert statistic.value() == left


def test_a_sample_depends_only_on_sequence_numbers() -> None:
    base = BUILTINS["priority_sample"].base
    assert base is not None
    counted, numbered = base(), base()
    for number in range(50):
        counted.iterate((f"tuple {number}",))
        numbered.iterate((f"tuple {number}", number))
    best = max(range(50), key=mix_bits)
    assert counted.terminate() == numbered.terminate() == [f"tuple {best}"]


def test_samples_are_spread_evenly() -> None:
    drawn = Counter(max(range(first, first + 10), key=mix_bits) - first for first in range(0, 20_000, 10))
    assert all(120 < drawn[index] < 280 for index in range(10))
