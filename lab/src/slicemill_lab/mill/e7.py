"""mill-E7: memory of waiting tuples and heartbeats (stream-mill E7, M20, M26).

The lines of mill-E5 at 50 and 0.05 tuples per second. The peak of all queues together includes punctuation.
At high rates, heartbeats that are not needed yet accumulate in the queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from pathlib import Path

from slicemill_lab.claims import ascending, at_least
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.e5 import SECONDS
from slicemill_lab.mill.graphs import E7_RATES, sweep
from slicemill_lab.plotting import curve, draw_curves

ETS_RATES: Mapping[Scale, tuple[float, ...]] = {
    "small": (0.1, 1, 10, 100, 500),
    "full": (0.1, 1, 10, 100, 500, 1000),
}


def run(seed: int, scale: Scale) -> Result:
    """Peak queue size of the four lines."""
    lines = sweep(E7_RATES, ETS_RATES[scale], seed, SECONDS[scale][E7_RATES])
    peak = {name: [line.peak_items for line in runs] for name, runs in lines.items()}
    a, c = peak["A no ETS"][0], peak["C on-demand ETS"][0]
    b = dict(zip(ETS_RATES[scale], peak["B periodic ETS"], strict=True))
    fastest = max(b)
    claims = (
        at_least("A holds thousands of tuples at its peak", a, 1000),
        at_least("C holds more than two orders less: A / C", a / c, 100),
        ascending(
            "B falls with the ETS rate at first",
            {"10/s": float(b[10]), "1/s": float(b[1]), "0.1/s": float(b[0.1]), "A": float(a)},
        ),
        ascending(
            f"B rises again at high rates: the least peak, and that at {fastest:g}/s",
            {"least": float(min(b.values())), f"{fastest:g}/s": float(b[fastest])},
            note="Up to 1 ETS per second the reversal is not yet seen, as printed.",
        ),
    )
    figures = {"rates": str(E7_RATES), "ets_rates": list(ETS_RATES[scale]), "peak_items": peak}
    return Result(claims, figures, {"A at its peak": [float(a)], "A over C": [log10(a / c)]})


def plot(result: Result, path: Path) -> None:
    """Peak queue size against ETS rate."""
    rates = result.figures["ets_rates"]
    peak = result.figures["peak_items"]
    draw_curves(
        path,
        {name: curve(rates, [values * (len(rates) // len(values))]) for name, values in peak.items()},
        title="Heartbeats save memory until they fill it themselves; on-demand ETS needs next to none",
        x_label="periodic ETS per second",
        y_label="peak of all queues [items]",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="mill-E7", title="Peak queue size under four ways to tell time", run=run, plot=plot, repeats=5
)
