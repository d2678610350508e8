"""Generated source and interpreter agree on random aggregates, for every strategy and chunk border."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aggregate.compiler.bodies import aggregates
from aggregate.compiler.comparing import MACHINE, PYTHON, Row, compare, over
from slicemill import types as t
from slicemill.catalog.queries import Window

TYPES = (t.INT, t.DOUBLE, t.VARCHAR)

units = st.sampled_from(["ROWS", "RANGE"])
BASE_WINDOWS = st.one_of(
    st.none(),
    st.builds(over, units, st.none()),
    st.builds(over, units, st.integers(1, 4)),
    st.builds(over, units, st.integers(1, 3), st.integers(4, 7)),
    st.builds(over, st.just("RANGE"), st.integers(1, 4), active=st.just(True)),
)
WINDOWS = st.one_of(
    st.builds(over, units, st.integers(1, 4)),
    st.builds(over, units, st.integers(5, 8), st.integers(1, 4)),
    st.builds(over, st.just("RANGE"), st.integers(1, 4), active=st.just(True)),
)


@st.composite
def chunked(draw: st.DrawFn) -> list[list[Row]]:
    """Draw tuples of up to three partitions in chunks of any size; NULLs occur late or not at all."""
    numbers = st.one_of(st.integers(-3, 3), st.sampled_from([2**31 - 1, -(2**31)]))
    reals = st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e308, float("nan"), 0.1])
    texts = st.sampled_from(["a", "b", "", "long"])
    nulls = draw(st.booleans())
    chunks: list[list[Row]] = [[]]
    ts = 0
    groups: dict[int, int] = {}
    for number in range(draw(st.integers(0, 14))):
        ts += draw(st.integers(0, 3))
        values = [draw(strategy) for strategy in (numbers, reals, texts)]
        if nulls and number > 4:
            values = [None if draw(st.integers(0, 3)) == 0 else value for value in values]
        # Groups are numbered in the order of their first tuples.
        group = groups.setdefault(draw(st.integers(0, 2)), len(groups))
        chunks[-1].append((ts, group, *values))
        if draw(st.integers(0, 3)) == 0:
            chunks.append([])
    return chunks


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(aggregates(window=False), BASE_WINDOWS, chunked())
def test_base_versions_give_the_rows_of_the_interpreter(
    text: str, window: Window | None, chunks: list[list[Row]]
) -> None:
    compare(text, "f", TYPES, window, chunks, [PYTHON])


@pytest.mark.slow_cpu
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(aggregates(window=True), WINDOWS, chunked())
def test_window_versions_give_the_rows_of_the_interpreter(
    text: str, window: Window, chunks: list[list[Row]]
) -> None:
    compare(text, "f", TYPES, window, chunks, [PYTHON])


# Compilation of each takes seconds, so there are few cases, with many parts each.
@pytest.mark.parametrize("window", [None, over("ROWS", 2), over("RANGE", 5, 2)], ids=str)
@settings(max_examples=1, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_machine_code_gives_the_rows_of_the_interpreter(window: Window | None, data: st.DataObject) -> None:
    text = data.draw(aggregates(window=window is not None))
    compare(text, "f", TYPES, window, data.draw(chunked()), [MACHINE])
