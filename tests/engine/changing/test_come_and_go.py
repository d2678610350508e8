"""Any sequence of CREATE, DROP and restart leaves the rows of every other query as if it were alone.

`slow_come_and_go.py` tries many more sequences.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from engine.changing.catalogue import DECLARED, KINDS, RELATIONS
from engine.changing.come_and_go import Step, play, sequences
from slicemill.binder import bind
from slicemill.operators import registry
from slicemill.plan.planner import Planner


def test_the_catalogue_has_every_operator() -> None:
    relations = "".join(f"{text};" for text in RELATIONS.values())
    queries = "".join(f"{kind.create(f'q_{name}')};" for name, kind in KINDS.items())
    graph = Planner().plan(bind(DECLARED + relations + queries).catalog).graph
    found = {type(node.operator) for node in graph}
    assert [kind.spec.__name__ for kind in registry.kinds() if kind.spec not in found] == []


@pytest.mark.slow_cpu
def test_all_queries_come_one_after_the_other_and_many_go() -> None:
    """Each finds others of its task there, goes through a crash and a restart, and sees some of them go."""
    steps: list[Step] = []
    for number, kind in enumerate(KINDS):
        steps.append(("create", f"q_{kind}", kind))
        if number % 8 == 7:
            steps += [("feed", 3), ("run",)]
    steps += [("feed", 2), ("restart", False)]
    steps += [("drop", f"q_{kind}") for kind in list(KINDS)[::3]]
    steps += [("tidy",), ("feed", 4), ("run",), ("restart", True)]
    play(steps, seed=1, subtasks=3)


# Sequences that were wrong once.
WRONG_ONCE: dict[str, list[Step]] = {
    "two joins come between two runs, and the first is to find what is stored": [
        ("feed", 6),
        ("create", "a", "join_derived"),
        ("feed", 12),
        ("create", "b", "join_derived"),
        ("create", "c", "join_derived"),
    ],
    "tuples that nobody wanted were there before the first query": [
        ("feed", 1),
        ("create", "a", "join_theta"),
    ],
    "a reader of a derived stream comes while tuples wait before that": [
        ("create", "a", "from_totals"),
        ("feed", 9),
        ("create", "b", "table_totals"),
        ("create", "c", "join_derived"),
        ("feed", 3),
        ("run",),
    ],
    "what one found of others is less in some streams than in others": [
        ("create", "a", "join_three_in_another_order"),
        ("feed", 2),
        ("restart", False, "d", "join_three"),
        ("drop", "a"),
        ("create", "b", "join_three_in_another_order"),
    ],
}


@pytest.mark.parametrize("steps", WRONG_ONCE.values(), ids=WRONG_ONCE.keys())
def test_sequences_that_were_wrong_once(steps: list[Step]) -> None:
    for seed in (1, 2):
        play(steps, seed)


# To shrink an example takes longer than to read one.
@settings(
    max_examples=10,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(sequences())
def test_queries_come_and_go_and_others_give_what_they_give_alone(
    given_: tuple[list[Step], int, int],
) -> None:
    play(*given_)
