"""Random sequences of CREATE, DROP and restart, and each kind of query beside all other kinds."""

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
def test_a_query_gives_the_rows_that_it_gives_alone_while_others_are_created_and_dropped(
    given_: tuple[list[Step], int, int],
) -> None:
    play(*given_)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_of_query_gives_its_rows_beside_all_other_kinds(kind: str) -> None:
    """The query is created after others, survives a crash, and sees other queries dropped."""
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
def test_every_kind_of_query_continues_after_its_stream_gets_a_column(tmp_path: Path, reopened: str) -> None:
    kinds = [kind for kind in PAST if kind not in REFUSED]
    undisturbed = of_each_kind(tmp_path / "narrow", kinds, altered=False)
    assert of_each_kind(tmp_path / "wide", kinds, altered=True, reopened=reopened) == undisturbed
