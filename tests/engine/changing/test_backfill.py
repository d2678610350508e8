"""A query that begins in the past gives what one gives that was always there, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.changing.backfills import PAST, Scene, play, sequences
from engine.changing.catalogue import DECLARED, KINDS, RELATIONS
from engine.changing.come_and_go import Step
from slicemill.binder import bind
from slicemill.plan.planner import Planner
from slicemill.runtime.tasks import BACKFILL
from slicemill.storage.changes import Change
from slicemill.storage.home import Home

# Each step of its life is there at some moment, and what others do falls into any of them.
STEADY: list[Step] = [("run_all",), ("feed", 6)] * 16


# A kind for each operator; `slow_backfill.py` has all kinds.
FOR_EACH_OPERATOR = (
    *("best_of_windows", "distinct", "early_sessions", "early_windows", "elements", "grouped", "join_as_of"),
    *("join_changes", "join_closed", "join_three", "join_three_rows", "join_tree", "model", "over_called"),
    *("over_join", "runs_late", "sessions", "sessions_apart", "table", "told_every", "top", "view"),
    "whole_windows",
)


def begin_in_the_past(kind: str) -> None:
    """Begin a query beside a live query of the same kind, over a crash and a restart, in several subtasks."""
    steps: list[Step] = [("live", "l", kind), ("feed", 30), ("past", "p", kind), ("run",), ("restart", False)]
    play([*steps, ("feed", 5), ("run",), ("restart", True), *STEADY], seed=3, subtasks=2)


@pytest.mark.parametrize("kind", FOR_EACH_OPERATOR)
def test_a_query_from_the_past_is_one_that_was_always_there(kind: str) -> None:
    begin_in_the_past(kind)


def test_the_kinds_that_begin_in_the_past_have_every_operator() -> None:
    def operators(kinds: Sequence[str]) -> set[str]:
        relations = "".join(f"{text};" for text in RELATIONS.values())
        queries = "".join(f"{KINDS[kind].create(f'q_{kind}')};" for kind in kinds)
        graph = Planner().plan(bind(DECLARED + relations + queries).catalog).graph
        return {type(node.operator).__name__ for node in graph}

    assert operators(FOR_EACH_OPERATOR) == operators(PAST)


def test_a_late_query_from_the_past_reads_retained_late_rows() -> None:
    play([("past", "p0", "all"), ("feed", 4), ("past", "p1", "runs_late")], seed=1)


@pytest.mark.slow_cpu
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=sequences(), seed=st.integers(0, 3), subtasks=st.sampled_from([1, 3]))
def test_whatever_happens_meanwhile(steps: list[Step], seed: int, subtasks: int) -> None:
    play(steps, seed, subtasks)


# Windows that join others, a join that does, and one that stays apart.
DYING = ("panes", "join", "over_rows")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", DYING)
def test_a_process_that_dies_at_any_commit_of_its_way_leaves_it_before_or_after(
    monkeypatch: pytest.MonkeyPatch, kind: str, after: bool
) -> None:
    """Before or after each record of the journal by which a query begins, has caught up, and joins others."""
    number, died = 0, True
    while died:
        with TemporaryDirectory() as folder, monkeypatch.context() as patched:
            scene = Scene(Path(folder), seed=3)
            scene.live("l", kind)
            scene.feed(30)
            scene.run_all()
            died = _dies_at(patched, number, after, scene, kind)
            scene.begun.setdefault("p", (KINDS[kind].create("p FROM BEGINNING"), kind))
            if died:
                scene.mill.home.close()  # nothing of the dead process may write any more
                patched.undo()
                scene.mill = scene._started()
            for _ in range(8):
                scene.feed(9)
                scene.run_all()
            scene.end()
            scene.close()
        number += 1
    assert number > (2 if kind == "over_rows" else 3), "it has as many steps at least"


def _dies_at(patched: pytest.MonkeyPatch, number: int, after: bool, scene: Scene, kind: str) -> bool:
    """Let a query begin in the past and go its way, and the process die at a commit of it; False if the way
    has fewer."""
    commit, seen = Home.commit, 0

    def dying(home: Home, change: Change) -> int:
        nonlocal seen
        of_its_way = any(BACKFILL in fields for fields in change.tasks.values()) or any(
            "apart" in task for task in change.dropped_tasks
        )
        if not of_its_way:
            return commit(home, change)
        seen += 1
        if seen - 1 != number:
            return commit(home, change)
        if after:
            commit(home, change)
        raise KeyboardInterrupt

    patched.setattr(Home, "commit", dying)
    try:
        scene.past("p", kind)
        for _ in range(8):
            scene.feed(4)
            scene.run_all()
    except KeyboardInterrupt:
        return True
    return False
