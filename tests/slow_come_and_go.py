"""Many sequences of CREATE, DROP and restart, and each query of the catalogue beside all others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from engine.changing.backfills import PAST
from engine.changing.catalogue import KINDS
from engine.changing.come_and_go import Step, play, sequences
from engine.changing.test_adding_columns import REFUSED, of_each_kind


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(sequences())
def test_queries_come_and_go_and_others_give_what_they_give_alone(
    given_: tuple[list[Step], int, int],
) -> None:
    play(*given_)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_query_beside_all_others(kind: str) -> None:
    """It comes between others, one of its own kind among them, stays through a crash, and others go."""
    others = [(f"o_{name}", name) for name in KINDS if name != kind]
    half = len(others) // 2
    play(
        [
            ("create", "twin", kind),
            *(("create", name, other) for name, other in others[::4]),
            ("feed", 9),
            ("run",),
            ("create", "mine", kind),
            ("feed", 7),
            ("restart", False),
            ("drop", "twin"),
            ("feed", 4),
            *(("drop", name) for name, _ in others[:half:4]),
            ("tidy",),
            ("run",),
            ("replace", "mine", kind),
            ("feed", 5),
            ("restart", True),
        ]
    )


@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash"])
def test_all_kinds_go_on_when_their_streams_get_a_column(tmp_path: Path, reopened: str) -> None:
    kinds = [kind for kind in PAST if kind not in REFUSED]
    undisturbed = of_each_kind(tmp_path / "narrow", kinds, altered=False)
    assert of_each_kind(tmp_path / "wide", kinds, altered=True, reopened=reopened) == undisturbed
