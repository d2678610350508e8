"""mill-E17: variance of streams as a guide for observation, compared with their quality (E17, M55).

The tasks are those of mill-E16. HVWT computes one risk per observed stream, BFF several.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slicemill_lab.claims import Claim, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.classify import BFF, HVWT, LOADSTAR, RANDOM
from slicemill_lab.mill.e16 import SHARES, compare
from slicemill_lab.plotting import curve, draw_curves

COMPARED = (RANDOM, LOADSTAR, HVWT, BFF)


def run(seed: int, scale: Scale) -> Result:
    """Measure errors by policy and share shed, absolute and relative to random observation."""
    figures = compare(COMPARED, seed, scale)
    return Result(_claims(SHARES[scale], figures["error_over_random"]), figures)


def plot(result: Result, path: Path) -> None:
    """Plot errors relative to random observation against the share shed."""
    shares = result.figures["shed_percent"]
    draw_curves(
        path,
        {policy: curve(shares, [line]) for policy, line in result.figures["error_over_random"].items()},
        title="The widest stream of the worst task is as good a choice as the best one",
        x_label="streams not looked at [%]",
        y_label="errors over those of random",
    )


EXPERIMENT = Experiment(
    id="mill-E17",
    title="Errors of HVWT against the share of streams shed",
    run=run,
    plot=plot,
)


def _claims(shares: tuple[int, ...], ratios: Mapping[str, list[float]]) -> tuple[Claim, ...]:
    over_bff = [h / b for h, b in zip(ratios[HVWT], ratios[BFF], strict=True)]
    lists = ", ".join(f"{ratio:.2f} at {share} %" for share, ratio in zip(shares, over_bff, strict=True))
    return (
        at_most(
            "HVWT beats LoadStar at every share shed: its errors over LoadStar's, greatest",
            max(h / b for h, b in zip(ratios[HVWT], ratios[LOADSTAR], strict=True)),
            1,
        ),
        at_most(
            "HVWT is no worse than BFF: its errors over BFF's, mean over the shares",
            sum(over_bff) / len(over_bff),
            1,
            note=f"Printed: close to BFF. Here it is better: its errors over BFF's are {lists}. Half of the "
            "features hardly move and half jump, so that variance says nearly all; BFF weighs a stream by "
            "its expected value alone.",
        ),
    )
