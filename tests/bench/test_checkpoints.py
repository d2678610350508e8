"""The benchmark of checkpoints: each of its queries runs, and keeps something for each key."""

from __future__ import annotations

import pytest

from slicemill_lab.bench.inputs.keyed_states import QUERIES, KeyedQuery
from slicemill_lab.bench.measuring.keyed_states import keyed_figures


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_a_query_keeps_its_keys(query: KeyedQuery) -> None:
    few, many = keyed_figures(query, 10, 1), keyed_figures(query, 400, 1)
    assert many.bytes > few.bytes > 0
    assert many.states == few.states
