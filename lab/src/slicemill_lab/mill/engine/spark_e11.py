"""mill-spark-E11: cost of approximate frequent items on the engine (E11, M41).

The aggregates of mill-E11 in the four implementations of mill-spark-E10. In the publication, the window
maintenance of C no longer dominates, because counting costs more than adding to a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.e11 import ESL, ITEMS
from slicemill_lab.mill.engine.spark_e10 import MEASURED, WARM_UP, four_ways
from slicemill_lab.plotting import curve, draw_curves

WINDOWS: Mapping[Scale, tuple[int, ...]] = {"small": (20, 200), "full": (20, 200, 2_000)}


def run(seed: int, scale: Scale) -> Result:
    """Measure CPU time and state by implementation and window."""
    random = Random(seed)
    windows, measured = WINDOWS[scale], MEASURED[scale]
    items = [random.randrange(ITEMS) for _ in range(max(windows) + measured + WARM_UP)]
    return four_ways(ESL, items, windows, measured, "estimates")


def plot(result: Result, path: Path) -> None:
    """Plot CPU time against the window."""
    windows = result.figures["windows"]
    draw_curves(
        path,
        {way: curve(windows, [line]) for way, line in result.figures["us_per_tuple"].items()},
        title="Frequent items on the engine",
        x_label="window [rows]",
        y_label="processor time of a tuple [µs]",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="mill-spark-E11",
    title="Frequent items in a window on the engine, in four ways",
    run=run,
    plot=plot,
    substrate="engine",
    repeats=5,
)
