"""Loops of joins are compiled when they are first needed, for types that are given."""

from __future__ import annotations

import numpy as np
import pytest
from numba import types

from slicemill.operators.join import hashing, probe
from slicemill.operators.join.block import FOREVER
from slicemill.operators.join.probe import TypedKernel, typed_kernel
from slicemill.time import BEGINNING


def doubled(values: np.ndarray, out: np.ndarray) -> None:
    for row in range(len(values)):
        out[row] = 2 * values[row]


READ_ONLY, WRITTEN = types.Array(types.int64, 1, "C", readonly=True), types.Array(types.int64, 1, "C")


def test_a_loop_is_compiled_by_its_first_call_and_only_for_its_types() -> None:
    double = typed_kernel(types.void(READ_ONLY, WRITTEN))(doubled)
    assert not double.is_compiled
    values, out = np.arange(3), np.zeros(3, np.int64)
    double(values, out)
    assert double.is_compiled
    assert out.tolist() == [0, 2, 4]
    values.flags.writeable = False
    double(values, out)
    with pytest.raises(TypeError, match="No matching definition"):
        double(values.astype(np.float32), out)


def test_every_loop_of_a_join_is_compiled_for_its_types() -> None:
    modules = (hashing, probe)
    found = [value for module in modules for value in vars(module).values() if isinstance(value, TypedKernel)]
    assert len(found) == 14
    for each in found:
        each.compile()
    assert all(each.is_compiled for each in found)


def test_groups_are_in_order_of_their_hashes_and_equal_ones_as_they_were() -> None:
    random = np.random.default_rng(1)
    # Few high bits: long parts of the directory with different hashes in them.
    hashes = random.integers(0, 40, 500).astype(np.uint64)
    order, first = np.empty(500, np.int32), np.empty(500, np.int32)
    probe.group(hashes, order, first)
    assert order.tolist() == np.argsort(hashes, kind="stable").tolist()


@pytest.mark.parametrize("window_us", [1, 2**40, FOREVER])
@pytest.mark.parametrize("now", [BEGINNING, BEGINNING // 2, -5, 0])
def test_rows_that_are_still_to_be_met_stay_however_early_it_is_and_long_the_window(
    window_us: int, now: int
) -> None:
    times, one = np.array([0, 7, 2**50]), np.ones(1, np.uint64)
    alive = np.zeros(3, np.bool_)
    probe.find_alive(
        times, np.zeros(3, np.int64), np.ones((3, 1), np.uint64), one, now, 0,
        np.array([window_us]), np.array([-1]), np.zeros(1, np.int32), one, alive,
    )  # fmt: skip
    assert alive.all()
