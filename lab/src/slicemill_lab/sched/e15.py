"""sched-E15: cost of least memory (metrics-and-schedulers E15, P11, P29).

Chain compared with the best policy of each objective at 97 % load. Published: Chain's mean slowdown is 3
times HNR's, which needs twice the memory. Its norm of slowdowns is 2.2 times BSD's, which needs 1.85 times
the memory.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import Claim
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import draw_bars
from slicemill_lab.policies.registry import OBJECTIVES
from slicemill_lab.published.figure import ratios
from slicemill_lab.sched.runs import SYNTHETIC, Service, samples, shown
from slicemill_lab.spread import lower

LOAD = 0.97
PUBLISHED = ("mean slowdown", "l2 slowdown")
MEMORY = ("hnr", "bsd")


def run(seed: int, scale: Scale) -> Result:
    """Measure Chain's figures relative to the policy made for each objective."""
    setting = Service(LOAD)
    claims: list[Claim] = []
    measured: dict[str, list[float]] = {}
    means: dict[str, float] = {}
    for objective, policy in OBJECTIVES.items():
        if objective == "staleness":
            continue  # not published
        chain, own = (samples(objective, name, setting, seed, scale) for name in ("chain", policy))
        claims.append(lower(f"{objective}: {shown(policy)} below Chain", own, chain))
        means[objective] = fmean(ratios(chain, own))
        if objective in PUBLISHED:
            measured[f"{objective}: Chain over {shown(policy)}"] = ratios(chain, own)
    for policy in MEMORY:
        own, chain = (samples("mean memory", name, setting, seed, scale) for name in (policy, "chain"))
        claims.append(lower(f"memory: Chain below {shown(policy)}", chain, own))
        measured[f"memory: {shown(policy)} over Chain"] = ratios(own, chain)
    return Result(tuple(claims), {"arrivals": SYNTHETIC, "ratios": means}, measured)


def plot(result: Result, path: Path) -> None:
    """A bar for each objective."""
    draw_bars(
        path,
        {objective.replace(" ", "\n"): 100 * ratio for objective, ratio in result.figures["ratios"].items()},
        title=f"What least memory costs (load {LOAD:g}; {SYNTHETIC})",
        y_label="Chain, in % of the policy made for the objective",
    )


EXPERIMENT = Experiment(id="sched-E15", title="Chain under the other objectives", run=run, plot=plot)
