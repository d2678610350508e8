"""sched-E15: what does least memory cost? (metrics-and-schedulers E15, P11, P29)

Chain against the proper policy of each objective at 97 % load. Published: Chain's mean slowdown is 3 times
HNR's, which needs twice the memory; its norm of slowdowns 2.2 times BSD's, which needs 1.85 times the memory.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import Claim, at_least
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import draw_bars
from slicemill_lab.policies.registry import OBJECTIVES
from slicemill_lab.sched.runs import SYNTHETIC, Service, samples, shown

LOAD = 0.97
PUBLISHED = {"mean slowdown": "3", "l2 slowdown": "2.2"}
MEMORY = {"hnr": "2", "bsd": "1.85"}


def run(seed: int, scale: Scale) -> Result:
    """Chain's figures over those of the policy made for each objective."""
    setting = Service(LOAD)
    claims: list[Claim] = []
    ratios: dict[str, float] = {}
    for objective, policy in OBJECTIVES.items():
        if objective == "staleness":
            continue  # not among the published ones
        chain, own = (samples(objective, name, setting, seed, scale) for name in ("chain", policy))
        each = [a / b for a, b in zip(chain, own, strict=True)]
        ratios[objective] = fmean(each)
        printed = f"published: {PUBLISHED[objective]}; " if objective in PUBLISHED else ""
        claims.append(
            at_least(
                f"{objective}: Chain over {shown(policy)}",
                fmean(each),
                1.0,
                note=f"{printed}{min(each):.2f} to {max(each):.2f} over {len(each)} seeds",
            )
        )
    for policy, printed in MEMORY.items():
        own, chain = (samples("mean memory", name, setting, seed, scale) for name in (policy, "chain"))
        each = [a / b for a, b in zip(own, chain, strict=True)]
        claims.append(
            at_least(
                f"memory: {shown(policy)} over Chain",
                fmean(each),
                1.0,
                note=f"published: {printed}; {min(each):.2f} to {max(each):.2f} over {len(each)} seeds",
            )
        )
    return Result(tuple(claims), {"arrivals": SYNTHETIC, "ratios": ratios})


def plot(result: Result, path: Path) -> None:
    """A bar for each objective."""
    draw_bars(
        path,
        {objective.replace(" ", "\n"): 100 * ratio for objective, ratio in result.figures["ratios"].items()},
        title=f"What least memory costs (load {LOAD:g}; {SYNTHETIC})",
        y_label="Chain, in % of the policy made for the objective",
    )


EXPERIMENT = Experiment(id="sched-E15", title="Chain under the other objectives", run=run, plot=plot)
