"""Benchmark of checkpoints: each of its queries runs, and has state for each key."""

from __future__ import annotations

import pytest

from slicemill_lab.bench.inputs.keyed_states import QUERIES, KeyedQuery
from slicemill_lab.bench.measuring.keyed_states import keyed_figures

# `string_agg` stores the text of each row. A measurement reads a few thousand rows with random keys, so the
# size of this state grows only with many more keys.
MANY_KEYS = {"GROUP BY: string_agg": 8_000}


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_state_grows_with_the_number_of_keys(query: KeyedQuery) -> None:
    few, many = keyed_figures(query, 10, 1), keyed_figures(query, MANY_KEYS.get(query.name, 400), 1)
    assert many.bytes > few.bytes > 0
    assert many.states == few.states
