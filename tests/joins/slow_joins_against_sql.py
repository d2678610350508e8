"""Hundreds of random sets of joins against DuckDB, placed in every way (`make test-slow`)."""

from __future__ import annotations

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from joins.playing import Scene, check, scenes


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenes(subtasks=st.integers(1, 8)))
def test_joins_give_what_sql_gives(scene: Scene) -> None:
    event(f"a key was heavy: {check(scene) > 0}")
