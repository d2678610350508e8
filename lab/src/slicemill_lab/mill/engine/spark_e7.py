"""mill-spark-E7: number of waiting tuples on the engine (stream-mill E7, M20, M26).

The lines of mill-spark-E5, with the peak number of tuples that have arrived and not been emitted. In the
publication, heartbeats accumulate at high rates. On the engine a watermark is a number that the next one
replaces, so heartbeats take no memory.
"""

from __future__ import annotations

from math import log10
from pathlib import Path

from slicemill_lab.claims import ascending, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.engine.spark_e5 import ETS_RATES, SECONDS, draw_lines, of_periodic
from slicemill_lab.mill.engine.union import A, B, C, sweep
from slicemill_lab.mill.graphs import E7_RATES


def run(seed: int, scale: Scale) -> Result:
    """Measure the peak of waiting tuples of the four lines, and runs of the union."""
    rates = ETS_RATES[scale]
    lines = sweep(E7_RATES, rates, seed, SECONDS[scale])
    # A tuple emitted at its first poll has not waited. The minimum for ratios is one tuple.
    peak = {name: [max(1, one.peak_rows) for one in runs] for name, runs in lines.items()}
    runs_made = {name: [one.runs for one in runs] for name, runs in lines.items()}
    a, c = peak[A][0], peak[C][0]
    periodic = of_periodic(lines[B], rates, "peak_rows")
    rarest = dict(list(periodic.items())[1:])
    claims = (
        ascending("fewer tuples wait, the more often they are told the time", {**rarest, "A": float(a)}),
        at_most("C: tuples that wait after a poll, at most", lines[C][0].peak_rows, 0),
        at_most(
            "heartbeats take no memory: the peak at their highest rate, beside the least",
            peak[B][-1],
            min(peak[B]),
            note="Printed: it rises again, as heartbeats wait in queues. Here the next one replaces it.",
        ),
    )
    figures = {
        "rates": str(E7_RATES),
        "ets_rates": list(rates),
        "peak_rows": peak,
        "runs": runs_made,
    }
    return Result(claims, figures, {"A over C": [log10(a / c)], "A at its peak": [float(a)]})


def plot(result: Result, path: Path) -> None:
    """Peak of waiting tuples against ETS rate."""
    draw_lines(
        result,
        path,
        "peak_rows",
        title="On the engine heartbeats save memory and take none",
        y_label="tuples that wait, at most",
    )


EXPERIMENT = Experiment(
    id="mill-spark-E7",
    title="Queues of a union on the engine, under four ways to tell time",
    run=run,
    plot=plot,
    substrate="engine",
    repeats=5,
)
