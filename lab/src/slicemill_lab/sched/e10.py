"""sched-E10: value of knowing which tuples become results (metrics-and-schedulers E10, P28, A16).

Clairvoyant policies are compared with policies that use mean figures, each under its own objective.
Published: knowledge gains up to 80 % if all selectivities are 0.1, and 12 % if they go up to 1.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import Claim
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.published.figure import changes
from slicemill_lab.sched.runs import SYNTHETIC, Service, samples, shown
from slicemill_lab.spread import lower, ordered

OBJECTIVES = {"hr": "mean response", "hnr": "mean slowdown"}
LOAD = 0.95
PERCENT = (10, 50, 100)


def run(seed: int, scale: Scale) -> Result:
    """Measure how far the oracle is below the policy, by greatest selectivity."""
    claims: list[Claim] = []
    measured: dict[str, list[float]] = {}
    at_least: list[list[float]] = []
    gains: dict[str, list[list[float]]] = {}
    for policy, objective in OBJECTIVES.items():
        columns = []
        for percent in PERCENT:
            plain, oracle = (
                samples(objective, name, Service(LOAD, most=percent), seed, scale)
                for name in (policy, f"{policy}-o")
            )
            columns.append([1 - known / guessed for known, guessed in zip(oracle, plain, strict=True)])
            claims.append(
                lower(
                    f"up to {percent / 100:g}: {shown(policy)}-O below {shown(policy)}, {objective}",
                    oracle,
                    plain,
                )
            )
            if percent == 10:
                at_least.append(changes(oracle, plain))
            elif percent == 100:
                name = f"selectivities up to 1: {shown(policy)}-O against {shown(policy)}"
                measured[name] = changes(oracle, plain)
        falling = {f"up to {p / 100:g}": column for p, column in zip(PERCENT, columns, strict=True)}
        claims.append(
            ordered(
                f"{shown(policy)}: knowing is worth less, the more passes", dict(reversed(falling.items()))
            )
        )
        gains[shown(policy)] = [list(row) for row in zip(*columns, strict=True)]
    measured["selectivities of 0.1: the better oracle against its policy"] = min(at_least, key=fmean)
    return Result(
        tuple(claims),
        {"arrivals": SYNTHETIC, "curves": {name: curve(PERCENT, rows) for name, rows in gains.items()}},
        measured,
    )


def plot(result: Result, path: Path) -> None:
    """The gain against the greatest selectivity."""
    draw_curves(
        path,
        result.figures["curves"],
        title=f"What knowing the future would gain (load {LOAD:g}; {SYNTHETIC})",
        x_label="greatest selectivity [%]",
        y_label="part by which the oracle is lower",
    )


EXPERIMENT = Experiment(id="sched-E10", title="Policies that see ahead", run=run, plot=plot)
