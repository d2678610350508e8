"""Every operator is registered once, with a step that is there; planning loads nothing that runs."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from slicemill.extension import load
from slicemill.operators.protocol import Operator, OperatorKind, Role, SharedOperator
from slicemill.operators.registry import kinds
from slicemill_oracle.translate import TWINS

LIST_LOADED = """
import sys
import slicemill.plan.planner, slicemill.explain.text
print(*(name for name in sys.modules if name in ("numba", "numpy", "pyarrow", "pyspark")))
print(*(name for name in sys.modules if name.startswith("slicemill.operators.") and name.endswith("step")))
"""


def all_operators(base: type = Operator) -> set[type]:
    below = {found for direct in base.__subclasses__() for found in all_operators(direct)}
    return below | set(base.__subclasses__())


def test_each_operator_is_registered_once() -> None:
    # A class with slots is made twice, the first of which nobody has.
    names = {operator.__name__ for operator in all_operators()} - {SharedOperator.__name__}
    assert Counter(kind.spec.__name__ for kind in kinds()) == Counter(names)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.spec.__name__)
def test_what_a_kind_names_is_there(kind: OperatorKind[Operator]) -> None:
    assert kind.step is None or callable(load(kind.step))
    ends = (Role.SOURCE, Role.TABLE)
    assert (kind.step is None) == (kind.role in ends or kind.spec.__name__ == "Part")
    assert (kind.member is not None) == issubclass(kind.spec, SharedOperator)


def test_the_reference_has_a_twin_of_each_operator_that_a_statement_asks_for() -> None:
    """Rules bring the others in, for sharing and under load."""
    by_rules = {"SharedJoin", "InOrder", "SharedWindows", "SharedModels", "Part"}
    by_rules |= {"SharedSessions", "SharedOver"}
    by_rules |= {"Drop", "WholeWindows"}
    ends = {kind.spec.__name__ for kind in kinds() if kind.role in (Role.SOURCE, Role.TABLE, Role.SINK)}
    assert {operator.__name__ for operator in TWINS} == {k.spec.__name__ for k in kinds()} - by_rules - ends


def test_planning_loads_nothing_that_runs() -> None:
    done = subprocess.run([sys.executable, "-c", LIST_LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", ""]
