"""A small sample of `slow_random_results.py`: some hundred tables, the same in every run."""

from __future__ import annotations

import pytest

from support.random_results import Compared, compare


@pytest.mark.parametrize("seed", [0, 1003, 1004, 1011])
def test_tables_at_every_moment_equal_those_of_duckdb(seed: int) -> None:
    found = Compared()
    compare(seed, 5, 10, found, reference=True)
    assert not found.wrong, found.wrong
    assert not found.refused, found.refused
    assert sum(found.tables.values()) > 30
