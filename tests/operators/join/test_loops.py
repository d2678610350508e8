"""Loops of joins are compiled when they are first needed, for types that are given."""

from __future__ import annotations

import numpy as np
import pytest
from numba import types

from slicemill.operators.join import hashing, placing, probe, retain
from slicemill.operators.join.loops import Loop, loop


def doubled(values: np.ndarray, out: np.ndarray) -> None:
    for row in range(len(values)):
        out[row] = 2 * values[row]


READ_ONLY, WRITTEN = types.Array(types.int64, 1, "C", readonly=True), types.Array(types.int64, 1, "C")


def test_a_loop_is_compiled_by_its_first_call_and_only_for_its_types() -> None:
    double = loop(types.void(READ_ONLY, WRITTEN))(doubled)
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
    modules = (hashing, placing, probe, retain)
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Loop)]
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
