"""Definition of an experiment: id, title, a run that returns claims and figures, and a plot.

    EXPERIMENT = Experiment(id="mill-E1", title="...", run=run, plot=plot)

`run(seed, scale)` is deterministic for a seed and has no effects outside the process. Measured times are the
exception, and claims about them are marked `timed`. `figures` contains plain numbers, strings, lists and
mappings. It is printed as JSON and is the only input of `plot`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from slicemill_lab.claims import Claim

Scale = Literal["small", "full"]
"""Size of a run: `small` ends within seconds, `full` has the published sizes."""

Substrate = Literal["simulator", "formula", "engine"]
"""Substrate of an experiment: a simulator in virtual time, closed formulas, or the product's engine."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one run: checked claims, their figures, and values to compare with published ones.

    `measured` has one value per seed for each published figure of the experiment, under the same names.
    """

    claims: tuple[Claim, ...]
    figures: Mapping[str, Any]
    measured: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return all(claim.holds for claim in self.claims)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A published experiment. `plot` writes one image to the given path."""

    id: str
    title: str
    run: Callable[[int, Scale], Result]
    plot: Callable[[Result, Path], None]
    substrate: Substrate = "simulator"
    repeats: int = 1
    """Number of seeds of a report. An experiment that uses several seeds in each run needs only one."""


def to_json(result_id: str, result: Result) -> str:
    """Return the one-line JSON object for scripts: id, claims and figures."""
    body = {
        "id": result_id,
        "claims": [_claim(claim) for claim in result.claims],
        "figures": result.figures,
        "measured": result.measured,
    }
    return json.dumps(_plain(body), ensure_ascii=False, allow_nan=False)


def _claim(claim: Claim) -> dict[str, Any]:
    named = asdict(claim)
    return named if claim.timed else {name: value for name, value in named.items() if name != "timed"}


def _plain(value: object) -> object:
    # NumPy scalars and arrays convert themselves to Python values. JSON has no infinities, so they become
    # text.
    to_python = getattr(value, "tolist", None)
    if to_python is not None:
        return _plain(to_python())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
