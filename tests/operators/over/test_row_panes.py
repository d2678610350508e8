"""Windows that slide by rows keep panes in place of rows, and answer as the reference and by brute force."""

from __future__ import annotations

from math import fsum
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.over.streams import PARTITIONS, SCHEMA, call, column, table, tuples
from operators.over.test_calls import by_kernels, by_reference
from slicemill import types as t
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.queries import FrameUnit, Window, WindowCall
from slicemill.operators.window import over_groups as groups
from slicemill.operators.window.over import WindowCalls
from slicemill.storage.state_size import state_bytes
from slicemill.types import Column, Timed

ALGEBRAIC = sorted(name for name, builtin in BUILTINS.items() if builtin.algebraic)
# Extent and slide: windows of several panes, slides of several, slides that leave rows out.
FRAMES = [(3, 2), (5, 2), (5, 4), (3, 4), (1, 6), (8, 6)]


@pytest.mark.parametrize("name", ALGEBRAIC)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32), frame=st.sampled_from(FRAMES))
@example(seed=7, frame=(5, 4))
def test_panes_of_rows_equal_the_reference(name: str, seed: int, frame: tuple[int, int]) -> None:
    random = Random(seed)
    window = Window(FrameUnit.ROWS, *frame)
    calls = [call(random, name, window, random.choice(PARTITIONS), 0)]
    rows = tuples(random, random.choice([1, 9, 40]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "LEAST_PANE", 2)
        found = by_kernels(random, calls, rows)
    assert found == by_reference(calls, rows)


def many(extent: int, slide: int, name: str = "sum") -> WindowCall:
    window = Window(FrameUnit.ROWS, extent, slide)
    return WindowCall(name, (column("d"),), False, (column("g"),), window, (Column("x", t.DOUBLE),))


def test_panes_of_rows_equal_brute_force_with_ties_and_partitions() -> None:
    random, made = Random(5), many(95, 64)
    rows = [
        Timed(n // 7, (None, random.choice("ab"), 0, 0, random.random(), *[None] * 5)) for n in range(1500)
    ]
    windows = WindowCalls([made], SCHEMA)
    found: list[tuple[int, str, float]] = []
    for first in range(0, len(rows), 111):
        out, _ = windows.run(table(rows[first : first + 111]), 0)
        found += zip(*(out.column(name).to_pylist() for name in ("_ts", "g", "x")), strict=True)
    kept: dict[str, list[float]] = {"a": [], "b": []}
    expected = []
    for row in rows:
        of = kept[row.row[1]]
        of.append(row.row[4])
        if len(of) % 64 == 0:
            expected.append((row.ts, row.row[1], fsum(of[-96:])))
    assert found == expected and len(found) > 15


@pytest.mark.parametrize(("name", "share"), [("sum", 0.1), ("count", 0.1), ("max", 0.1), ("variance", 0.1)])
def test_state_is_that_of_panes(name: str, share: float) -> None:
    """A tenth of the rows' bytes at most: there are ten panes in place of 10 000 rows."""

    def bytes_with(least: int) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(groups, "LEAST_PANE", least)
            windows = WindowCalls([many(9_999, 1_000, name)], SCHEMA)
            rows = [Timed(n, (None, "a", 0, 0, n / 7, *[None] * 5)) for n in range(12_000)]
            for first in range(0, len(rows), 3_000):
                windows.run(table(rows[first : first + 3_000]), first)
        return state_bytes({"over": windows.state})

    assert bytes_with(groups.LEAST_PANE) < share * bytes_with(2**40)
