"""Any sequence of CREATE, DROP and restart leaves the rows of every other query as if it were alone."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.come_and_go import DECLARED, KINDS, RELATIONS, Scene
from slicemill.esl import bind
from slicemill.operators import registry
from slicemill.plan.planner import Planner

Step = tuple[str, *tuple[object, ...]]
_NAMES = st.sampled_from("abcde")
_KINDS = st.sampled_from(sorted(KINDS))
STEPS = st.one_of(
    st.tuples(st.just("create"), _NAMES, _KINDS),
    st.tuples(st.just("create"), _NAMES, _KINDS),
    st.tuples(st.just("drop"), _NAMES),
    st.tuples(st.just("replace"), _NAMES, _KINDS),
    st.tuples(st.just("tidy")),
    st.tuples(st.just("feed"), st.integers(1, 6)),
    st.tuples(st.just("feed"), st.integers(1, 6)),
    st.tuples(st.just("run")),
    st.tuples(st.just("restart"), st.booleans()),
)


def play(steps: list[Step], seed: int = 0, cells: int = 1) -> None:
    """Take the steps that are possible, and compare at the end."""
    with TemporaryDirectory() as folder:
        scene = Scene(Path(folder), seed, cells)
        try:
            for word, *given in steps:
                known = bool(given) and given[0] in scene.live
                if not (word == "create" and known) and not (word in ("drop", "replace") and not known):
                    getattr(scene, word)(*given)
            scene.end()
        finally:
            scene.close()


def test_the_catalogue_has_every_operator() -> None:
    relations = "".join(f"{text};" for text in RELATIONS.values())
    queries = "".join(f"{kind.create(f'q_{name}')};" for name, kind in KINDS.items())
    graph = Planner().plan(bind(DECLARED + relations + queries).catalog).graph
    found = {type(node.operator) for node in graph}
    assert [kind.spec.__name__ for kind in registry.KINDS if kind.spec not in found] == []


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=4, max_size=16), st.integers(0, 2), st.sampled_from([1, 3]))
def test_queries_come_and_go_and_others_give_what_they_give_alone(
    steps: list[Step], seed: int, cells: int
) -> None:
    play(steps, seed, cells)


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
