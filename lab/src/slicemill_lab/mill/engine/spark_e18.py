"""mill-spark-E18: CPU time saved on the engine by observing fewer values (E18, M53-M56).

Observing a value is a function in Python that takes 5 ms of CPU time (`observe`). Measured is the total CPU
time of the classifier's unit: reading rows, selection, observation, decisions and writing of results. Saving
= 1 − time with shedding / time without.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slicemill_lab.claims import Claim, at_least, equal, timed
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.classify import BFF, HVWT, LOADSTAR, RANDOM
from slicemill_lab.mill.engine.classifying import classified, walks_to_classify
from slicemill_lab.plotting import curve, draw_curves

COMPARED = (RANDOM, LOADSTAR, HVWT, BFF)
FEATURES: Mapping[Scale, tuple[int, ...]] = {"small": (4,), "full": (2, 4)}
SHARES = (10, 20, 50)
UNITS: Mapping[Scale, tuple[int, int]] = {"small": (300, 5), "full": (1000, 60)}


def run(seed: int, scale: Scale) -> Result:
    """Measure CPU time of a time unit and savings, by policy, features per task and share shed."""
    cpu: dict[int, dict[str, list[float]]] = {}
    saved: dict[int, dict[str, list[float]]] = {}
    more = 0.0
    for features in FEATURES[scale]:
        problem = walks_to_classify(seed, *UNITS[scale], features=features)
        whole = classified(problem, RANDOM, 0, seed, looking_costs=True)
        cpu[features] = {"all": [whole.cpu_s]}
        saved[features] = {}
        for policy in COMPARED:
            found = [classified(problem, policy, share, seed, looking_costs=True) for share in SHARES]
            cpu[features][policy] = [one.cpu_s for one in found]
            saved[features][policy] = [1 - one.cpu_s / whole.cpu_s for one in found]
            for share, one in zip(SHARES, found, strict=True):
                more = max(more, one.looked_at - round(problem.streams * (1 - share / 100)))
    figures = {"shed_percent": list(SHARES), "cpu_s_per_unit": cpu, "saving": saved}
    return Result(_claims(saved, more), figures)


def plot(result: Result, path: Path) -> None:
    """Savings against the share shed, four features per task."""
    draw_curves(
        path,
        {
            policy: curve(SHARES, [[100 * one for one in line]])
            for policy, line in result.figures["saving"][4].items()
        },
        title="On the engine nearly all of what is not looked at is saved",
        x_label="streams not looked at [%]",
        y_label="processor time saved [%]",
    )


EXPERIMENT = Experiment(
    id="mill-spark-E18",
    title="Processor time saved on the engine by looking at fewer values",
    run=run,
    plot=plot,
    substrate="engine",
)


def _claims(saved: Mapping[int, Mapping[str, list[float]]], more: float) -> tuple[Claim, ...]:
    ten, twenty = SHARES.index(10), SHARES.index(20)
    return (
        equal("values that were looked at beyond the capacity, in any run", more, 0),
        *(
            timed(
                at_least(
                    f"{policy}: where 10 % are shed, share of processor time saved, least over features",
                    min(by_policy[policy][ten] for by_policy in saved.values()),
                    0.05,
                    note="Printed: 5 to 7 %. Choosing is compiled here, so that more may be saved.",
                )
            )
            for policy in (LOADSTAR, HVWT)
        ),
        timed(
            at_least(
                "BFF: where 20 % are shed, share of processor time saved, least over features",
                min(by_policy[BFF][twenty] for by_policy in saved.values()),
                0.1,
                note="Printed: about 10 %.",
            )
        ),
    )
