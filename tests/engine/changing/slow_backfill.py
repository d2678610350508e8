"""Queries of every kind that begin in the past give what they give from the start (`make test-slow`)."""

from __future__ import annotations

import pytest

from engine.changing.backfills import PAST
from engine.changing.test_backfill import begin_in_the_past


@pytest.mark.parametrize("kind", PAST)
def test_a_query_of_each_kind_from_the_past_is_one_that_was_always_there(kind: str) -> None:
    begin_in_the_past(kind)
