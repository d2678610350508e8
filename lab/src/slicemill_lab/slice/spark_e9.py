"""slice-spark-E9: speed of three queries on the engine with and without slicing (state-slice E9).

The runs of slice-spark-E8. Counted are rows out of operators, to be routed on or delivered. Pull-up computes
pairs of the longest window and discards most of them. Rows per CPU second are measured as well; claims about
them are `timed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slicemill_lab.claims import Claim, at_least, timed
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.joins import mean, more
from slicemill_lab.slice.joins_on_engine import (
    ARRIVED,
    RIVALS,
    SETTINGS,
    WAYS,
    JoinsOnEngine,
    SparkSetting,
    on_engine,
)


def run(seed: int, scale: Scale) -> Result:
    """Measure rows out of operators, and rows per CPU second."""
    found = {setting: {way: on_engine(setting, way, seed) for way in WAYS} for setting in SETTINGS[scale]}
    figures = {
        str(setting): {
            way: {
                "rows out of operators": one.routed,
                "rows per CPU second": round(ARRIVED / one.cpu_s),
            }
            for way, one in ways.items()
        }
        for setting, ways in found.items()
    }
    best = [
        min(more(ways[way].cpu_s, ways["state-slice"].cpu_s) for way in ("pull-up", "push-down"))
        for ways in found.values()
    ]
    return Result(_claims(found), {"settings": figures}, {"ahead of the better rival": [max(best) / 100]})


def plot(result: Result, path: Path) -> None:
    """Plot rows per CPU second by method over the settings."""
    settings = result.figures["settings"]
    numbers = list(range(1, len(settings) + 1))
    draw_curves(
        path,
        {
            way: curve(numbers, [[found[way]["rows per CPU second"] for found in settings.values()]])
            for way in WAYS
        },
        title="Service rate of three queries on the engine",
        x_label="setting",
        y_label="rows per second of processor time",
    )


EXPERIMENT = Experiment(
    id="slice-spark-E9",
    title="Service rate of three queries on the engine: slices and other ways",
    run=run,
    plot=plot,
    substrate="engine",
)


def _claims(found: Mapping[SparkSetting, Mapping[str, JoinsOnEngine]]) -> tuple[Claim, ...]:
    fewer = {
        way: [more(ways[way].routed, ways["state-slice"].routed) for ways in found.values()] for way in RIVALS
    }
    faster = {
        way: [more(ways[way].cpu_s, ways["state-slice"].cpu_s) for ways in found.values()] for way in RIVALS
    }
    return (
        *(
            at_least(
                f"rows out of operators, {way} beyond slices: least over settings, %", min(fewer[way]), 0
            )
            for way in RIVALS
        ),
        *(
            timed(
                at_least(f"rows per CPU second, ahead of {way}: mean over settings, %", mean(faster[way]), 0)
            )
            for way in RIVALS
        ),
    )
