"""mill-E15: delay of readings in denoising methods as noise grows (E15, M44-M46, M48).

One tag per second is read ten times, 200 ms apart. Lazy keeps every reading for the whole window. Eager keeps
a reading while noise precedes it. So Eager is close to the unordered baseline with little noise, and close to
Lazy with much.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slicemill.connectors.generators.rfid import Tags
from slicemill_lab.claims import Claim, ascending, at_least
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.rfid import EAGER, LAZY, UNORDERED, WAYS, mean_delay_ms, readings
from slicemill_lab.plotting import curve, draw_curves

NOISE_PERCENT = (1, 5, 20, 50)
SECONDS: Mapping[Scale, float] = {"small": 2_000, "full": 20_000}
COMPARED = (UNORDERED, EAGER, LAZY)


def run(seed: int, scale: Scale) -> Result:
    """Measure the mean delay by method and share of noise."""
    delay: dict[str, list[float]] = {way: [] for way in COMPARED}
    for percent in NOISE_PERCENT:
        at, keys = readings(Tags(per_second=1, noise=percent / 100, seconds=SECONDS[scale], seed=seed))
        for way in COMPARED:
            delay[way].append(mean_delay_ms(at, WAYS[way](at, keys)))
    measured = {
        "1 % noise: Eager against Baseline (unordered)": [delay[EAGER][0] / delay[UNORDERED][0] - 1],
        "50 % noise: Eager against Lazy": [delay[EAGER][-1] / delay[LAZY][-1] - 1],
    }
    figures = {"noise_percent": list(NOISE_PERCENT), "mean_delay_ms": delay}
    return Result(_claims(delay), figures, measured)


def plot(result: Result, path: Path) -> None:
    """Delay against noise."""
    draw_curves(
        path,
        {way: curve(NOISE_PERCENT, [line]) for way, line in result.figures["mean_delay_ms"].items()},
        title="With little noise Eager is near the unordered baseline, with much it is near Lazy",
        x_label="noise [% of readings]",
        y_label="mean delay of a reading [ms]",
        log_x=True,
    )


EXPERIMENT = Experiment(
    id="mill-E15",
    title="Delay of RFID denoising against the share of noise",
    run=run,
    plot=plot,
    repeats=5,
)


def _claims(delay: Mapping[str, list[float]]) -> tuple[Claim, ...]:
    unordered, eager, lazy = delay[UNORDERED], delay[EAGER], delay[LAZY]
    way_to_lazy = [(e - u) / (z - u) for u, e, z in zip(unordered, eager, lazy, strict=True)]
    return (
        at_least(
            "Lazy is largest at every share of noise: its delay over that of Eager, least",
            min(z / e for e, z in zip(eager, lazy, strict=True)),
            1,
            note="So Eager is always better than Lazy, also where there is as much noise as not.",
        ),
        ascending(
            "Eager tends to Lazy as noise grows: how far it is on the way",
            {f"{percent} %": way for percent, way in zip(NOISE_PERCENT, way_to_lazy, strict=True)},
        ),
    )
