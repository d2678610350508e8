"""sched-E19: adaptive statistics compared with static ones (metrics-and-schedulers E19, P21, A18).

The data is Gaussian with a drifting mean; static policies assume uniform data. Published: adaptive statistics
are always better, and the
more so the narrower the data. For a deviation of 25, HR is at 74 % and HNR at 76 % of the static policies;
for a deviation of 5, at 10 % and
15 %. HR gains most.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import Claim
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.sched.adaptive.runs import GOING_BACK, LOAD, OBJECTIVES, PUBLISHED, ratios
from slicemill_lab.sched.runs import SYNTHETIC, shown
from slicemill_lab.spread import lower, lowest, ordered


def run(seed: int, scale: Scale) -> Result:
    """Measure each policy's own objective, adaptive relative to static, by deviation of the data."""
    deviations = (5, 25)
    found = {
        policy: {deviation: ratios(policy, deviation, PUBLISHED, seed, scale) for deviation in deviations}
        for policy in OBJECTIVES
    }
    claims: list[Claim] = []
    measured: dict[str, list[float]] = {}
    for policy, by_deviation in found.items():
        for deviation in (5, 25):
            each = by_deviation[deviation]
            name = f"deviation {deviation}: adaptive against static {shown(policy)}"
            claims.append(lower(name.replace("against", "below"), each, [1.0] * len(each)))
            if policy in ("hr", "hnr"):
                measured[name] = [ratio - 1 for ratio in each]
        claims.append(
            ordered(
                f"{shown(policy)}: the narrower the data, the better",
                {f"deviation {deviation}": by_deviation[deviation] for deviation in (5, 25)},
            )
        )
    claims += [
        lowest(
            f"deviation {deviation}: who gains most",
            "HR",
            {shown(policy): by_deviation[deviation] for policy, by_deviation in found.items()},
            note="published: the others gain less than HR; here they are alike within the spread",
        )
        for deviation in (5, 25)
    ]
    curves = {
        shown(policy): curve(deviations, list(zip(*by_deviation.values(), strict=True)))
        for policy, by_deviation in found.items()
    }
    back = [ratios("hr", deviation, GOING_BACK, seed, scale) for deviation in deviations]
    curves["HR, going back"] = curve(deviations, list(zip(*back, strict=True)))
    return Result(tuple(claims), {"arrivals": SYNTHETIC, "curves": curves}, measured)


def plot(result: Result, path: Path) -> None:
    """Plot the ratio against the deviation."""
    draw_curves(
        path,
        result.figures["curves"],
        title=f"Statistics that follow the data (load {LOAD:g}; {SYNTHETIC})",
        x_label="standard deviation of the data",
        y_label="adaptive over static, own objective",
    )


EXPERIMENT = Experiment(id="sched-E19", title="Adaptive against static statistics", run=run, plot=plot)
