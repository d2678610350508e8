"""Registry of experiments: finds them by module name, and imports only the requested one.

    mill/e1.py               mill-E1
    sched/freshness/e22.py   sched-E22         subfolders of a family do not affect the id
    slice/spark_e8.py        slice-spark-E8

A new experiment only needs a new file.
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
    """There is no experiment of this id."""


def experiment_ids() -> list[str]:
    """Return all ids, sorted by family and number."""
    return list(_modules_by_id())


def load(experiment_id: str) -> Experiment:
    """Return the experiment with this id."""
    experiment: Experiment = import_module(f"{__package__}.{module_of(experiment_id)}").EXPERIMENT
    return experiment


def module_of(experiment_id: str) -> str:
    """Return the module of an experiment. The error for an unknown id suggests the nearest known one."""
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
