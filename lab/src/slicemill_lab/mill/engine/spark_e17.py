"""mill-spark-E17: errors of HVWT, which computes little, compared with BFF on the engine (E17, M55)."""

from __future__ import annotations

from slicemill_lab.claims import at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.classify import BFF, HVWT, LOADSTAR, RANDOM
from slicemill_lab.mill.engine.spark_e16 import compare, plot

COMPARED = (RANDOM, LOADSTAR, HVWT, BFF)


def run(seed: int, scale: Scale) -> Result:
    """Measure errors of HVWT, LoadStar and BFF."""
    figures = compare(COMPARED, seed, scale)
    ratios = figures["error_over_random"]
    means = {policy: sum(line) / len(line) for policy, line in ratios.items()}
    claims = (
        at_most(
            "HVWT beats LoadStar: its errors over LoadStar's, means over the shares shed",
            means[HVWT] / means[LOADSTAR],
            1,
        ),
        at_most(
            "HVWT is close to BFF or better: its errors over BFF's, means over the shares shed",
            means[HVWT] / means[BFF],
            1,
            note="Printed is 'close'; the bound is that of mill-E17.",
        ),
    )
    return Result(claims, figures)


EXPERIMENT = Experiment(
    id="mill-spark-E17",
    title="Errors of HVWT on the engine",
    run=run,
    plot=plot,
    substrate="engine",
)
