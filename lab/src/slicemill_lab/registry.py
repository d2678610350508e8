"""Finds experiments by the names of their modules, and loads only the one that is asked for.

    mill/e1.py               mill-E1
    sched/freshness/e22.py   sched-E22         folders inside a family's are only for order
    slice/spark_e8.py        slice-spark-E8

A new experiment is a new file: nothing else lists it.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path

from slicemill.errors import SlicemillError
from slicemill_lab.experiment import Experiment

_LAB = Path(__file__).parent
_MODULE = re.compile(r"(?P<family>[a-z]+)\.(?:[a-z]+\.)*(?:(?P<variant>[a-z]+)_)?e(?P<number>\d+)")


class UnknownExperimentError(SlicemillError):
    """An id that no module of the lab answers to."""


def experiment_ids() -> list[str]:
    """All ids, by family and then by number."""
    return list(_modules_by_id())


def load(experiment_id: str) -> Experiment:
    """The experiment with this id."""
    experiment: Experiment = import_module(f"{__package__}.{module_of(experiment_id)}").EXPERIMENT
    return experiment


def module_of(experiment_id: str) -> str:
    """The module of an experiment; an unknown id is answered with the nearest known one."""
    modules = _modules_by_id()
    if experiment_id not in modules:
        raise UnknownExperimentError(f"no experiment {experiment_id!r}{_hint(experiment_id, list(modules))}")
    return modules[experiment_id]


@cache
def _modules_by_id() -> dict[str, str]:
    names = [".".join(file.relative_to(_LAB).with_suffix("").parts) for file in _LAB.rglob("*.py")]
    found = sorted(
        ("-".join(filter(None, (match["family"], match["variant"]))), int(match["number"]), match[0])
        for match in map(_MODULE.fullmatch, names)
        if match
    )
    return {f"{family}-E{number}": name for family, number, name in found}


def _hint(wrong: str, known: list[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(wrong.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]}?" if near else "; `slicemill lab list` shows all ids"
