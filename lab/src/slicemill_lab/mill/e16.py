"""mill-E16: errors of observation policies relative to random observation (E16, M50-M53, M56, X9, X18).

There are 25 tasks with four features each. Half of the features move so much in a time unit that an
observation is almost worthless one unit later. The other half hardly moves, so that an old observation is
still valid. A policy that knows the difference, and where it matters, makes fewer errors with the same number
of observations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slicemill_lab.claims import Claim, ascending, at_least, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.classify import (
    BFF,
    LOADSTAR,
    Q_BAYES,
    RANDOM,
    SHED_PERCENT,
    errors,
    over_random,
    walks,
)
from slicemill_lab.plotting import curve, draw_curves

COMPARED = (RANDOM, LOADSTAR, Q_BAYES, BFF)
# Time units for learning and for testing. Slow features stay near their start, so the errors of one set of
# tasks vary. They are averaged over several sets.
# errors of one set of tasks say little: they are means over several sets.
UNITS: Mapping[Scale, tuple[int, int]] = {"small": (1500, 100), "full": (5000, 5000)}
SETS: Mapping[Scale, int] = {"small": 5, "full": 3}
SHARES: Mapping[Scale, tuple[int, ...]] = {"small": (10, 40, 50, 90), "full": SHED_PERCENT}


def run(seed: int, scale: Scale) -> Result:
    """Measure errors by policy and share shed, absolute and relative to random observation."""
    figures = compare(COMPARED, seed, scale)
    bff = dict(zip(SHARES[scale], figures["error_over_random"][BFF], strict=True))
    measured = {f"{share} % shed: BFF below random": [100 * (1 - bff[share])] for share in (40, 50)}
    return Result(_claims(SHARES[scale], figures["error_over_random"]), figures, measured)


def compare(policies: Sequence[str], seed: int, scale: Scale) -> dict[str, Any]:
    """Return the figures of some policies, over the same sets of tasks."""
    problems = [walks(1000 * seed + number, *UNITS[scale]) for number in range(SETS[scale])]
    by_policy = errors(problems, policies, SHARES[scale], seed)
    return {
        "shed_percent": list(SHARES[scale]),
        "sets_of_tasks": SETS[scale],
        "error": by_policy,
        "error_over_random": over_random(by_policy),
    }


def plot(result: Result, path: Path) -> None:
    """Plot errors relative to random observation against the share shed."""
    shares = result.figures["shed_percent"]
    draw_curves(
        path,
        {policy: curve(shares, [line]) for policy, line in result.figures["error_over_random"].items()},
        title="Looking where the avoidable risk is errs far less than looking at random",
        x_label="streams not looked at [%]",
        y_label="errors over those of random",
    )


EXPERIMENT = Experiment(
    id="mill-E16",
    title="Errors of BFF, Q_Bayes and LoadStar against the share of streams shed",
    run=run,
    plot=plot,
)


def _claims(shares: tuple[int, ...], ratios: Mapping[str, list[float]]) -> tuple[Claim, ...]:
    at = {policy: dict(zip(shares, line, strict=True)) for policy, line in ratios.items()}
    loadstar = ", ".join(f"{at[LOADSTAR][share]:.2f} at {share} %" for share in shares)
    return (
        at_most(
            "BFF is more than 45 % better than random at 40 to 50 % shed: its errors over random's, greatest",
            max(at[BFF][40], at[BFF][50]),
            0.55,
        ),
        *(
            ascending(
                f"order at {share} % shed: errors over random's",
                {"BFF": at[BFF][share], "Q_Bayes": at[Q_BAYES][share], "random": at[RANDOM][share]},
            )
            for share in shares
        ),
        *(
            ascending(
                f"LoadStar is between Q_Bayes and random at {share} % shed: errors over random's",
                {"Q_Bayes": at[Q_BAYES][share], "LoadStar": at[LOADSTAR][share], "random": at[RANDOM][share]},
                note="Printed of every share. How LoadStar ranks tasks is not; ranked by the fall of Bayes "
                f"risk at the expected values (X9), its errors over random's are {loadstar}. Where little is "
                "shed it is worse than random: it leaves out whole tasks, and always those whose expected "
                "values lie between two classes.",
            )
            for share in (40, 50)
        ),
        at_least(
            "the gain drops as more is shed: BFF's errors over random's at 90 % over those at 50 %",
            at[BFF][90] / at[BFF][50],
            1,
        ),
    )
