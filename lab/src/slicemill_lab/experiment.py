"""What an experiment is: an id, a title, a run that gives claims and figures, and a plot of the result.

    EXPERIMENT = Experiment(id="mill-E1", title="...", run=run, plot=plot)

`run(seed, scale)` is deterministic from its seed, but for times that it measures beside what it counts
(claims about those are `timed`), and touches nothing outside the process. `figures` holds plain numbers,
strings, lists and mappings: it is printed as JSON and is all that `plot` sees.
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
"""How much to run: `small` ends within seconds, `full` has the published sizes."""

Substrate = Literal["simulator", "formula", "engine"]
"""What an experiment runs on: tuples in virtual time, closed forms, or the product's engine."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one run: what was checked, the figures behind it, and ours beside published ones.

    `measured` has, under the names that `published` knows for the experiment, a figure per seed.
    """

    claims: tuple[Claim, ...]
    figures: Mapping[str, Any]
    measured: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return all(claim.holds for claim in self.claims)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One published experiment. `plot` writes one image to the path it is given."""

    id: str
    title: str
    run: Callable[[int, Scale], Result]
    plot: Callable[[Result, Path], None]
    substrate: Substrate = "simulator"
    repeats: int = 1
    """How many seeds a report runs it from; a run that has several seeds inside needs one."""


def to_json(result_id: str, result: Result) -> str:
    """The one-line JSON object that scripts read: id, claims and figures."""
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
    # NumPy scalars and arrays know their Python form; JSON has no infinities, so those become text.
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
