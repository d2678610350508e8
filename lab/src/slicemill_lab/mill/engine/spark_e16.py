"""mill-spark-E16: errors of policies relative to random observation, on the engine (E16, M50-M53, M56).

The tasks of mill-E16 are a stream and a table of examples. The decisions of the engine's classifier are
compared with the truth. Its model is learnt from the examples, so there are some errors even with full
observation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slicemill_lab.claims import Claim, ascending, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.classify import BFF, LOADSTAR, Q_BAYES, RANDOM
from slicemill_lab.mill.engine.classifying import errors_on_engine, walks_to_classify
from slicemill_lab.plotting import curve, draw_curves

COMPARED = (RANDOM, LOADSTAR, Q_BAYES, BFF)
UNITS: Mapping[Scale, tuple[int, int]] = {"small": (1000, 60), "full": (5000, 1000)}
SETS: Mapping[Scale, int] = {"small": 2, "full": 3}
SHARES: Mapping[Scale, tuple[int, ...]] = {"small": (40, 50), "full": (10, 20, 30, 40, 50, 60, 70, 80, 90)}


def run(seed: int, scale: Scale) -> Result:
    """Measure errors by policy and share shed, absolute and relative to random observation."""
    figures = compare(COMPARED, seed, scale)
    return Result(_claims(SHARES[scale], figures), figures)


def compare(policies: Sequence[str], seed: int, scale: Scale) -> dict[str, Any]:
    """Return the figures of some policies, over the same sets of tasks."""
    problems = [walks_to_classify(1000 * seed + number, *UNITS[scale]) for number in range(SETS[scale])]
    error = errors_on_engine(problems, policies, SHARES[scale], seed)
    base = error.pop("all")[0]
    over = {
        policy: [one / other for one, other in zip(line, error[RANDOM], strict=True)]
        for policy, line in error.items()
    }
    return {
        "shed_percent": list(SHARES[scale]),
        "sets_of_tasks": SETS[scale],
        "error": error,
        "error_over_random": over,
        "error_of_all": base,
    }


def plot(result: Result, path: Path) -> None:
    """Plot errors relative to random observation against the share shed."""
    shares = result.figures["shed_percent"]
    draw_curves(
        path,
        {policy: curve(shares, [line]) for policy, line in result.figures["error_over_random"].items()},
        title="On the engine: looking where the avoidable risk is errs less than looking at random",
        x_label="streams not looked at [%]",
        y_label="errors over those of random",
    )


EXPERIMENT = Experiment(
    id="mill-spark-E16",
    title="Errors of BFF, Q_Bayes and LoadStar on the engine against the share of streams shed",
    run=run,
    plot=plot,
    substrate="engine",
)


def _claims(shares: tuple[int, ...], figures: Mapping[str, Any]) -> tuple[Claim, ...]:
    at = {
        policy: dict(zip(shares, line, strict=True)) for policy, line in figures["error_over_random"].items()
    }
    base = figures["error_of_all"]
    return (
        at_most(
            "BFF is more than 45 % better than random at 40 to 50 % shed: its errors over random's, greatest",
            max(at[BFF][40], at[BFF][50]),
            0.55,
            note=f"Looking at all errs in {100 * base:.1f} % of decisions: the model is learnt.",
        ),
        *(
            ascending(
                f"order at {share} % shed: errors over random's",
                {"BFF": at[BFF][share], "Q_Bayes": at[Q_BAYES][share], "random": at[RANDOM][share]},
            )
            for share in (40, 50)
        ),
    )
