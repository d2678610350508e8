"""Random sets of joins against DuckDB, placed in every way; more in `slow_joins_against_sql.py`."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from joins.playing import Scene, check, scenes


@settings(max_examples=20)
@given(scenes(cells=st.integers(1, 8)))
def test_joins_give_what_sql_gives(scene: Scene) -> None:
    check(scene)
