"""mill-spark-E6: share of time in which tuples wait idly on the engine (stream-mill E6, M21).

The lines of mill-spark-E5. After each poll the engine runs until no task is ready. The remaining tuples wait
only for the watermark of the other stream.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import ascending, equal
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.engine.spark_e5 import ETS_RATES, SECONDS, draw_lines, of_periodic
from slicemill_lab.mill.engine.union import A, B, C, D, sweep
from slicemill_lab.mill.graphs import E7_RATES


def run(seed: int, scale: Scale) -> Result:
    """Measure idle waiting of the four lines."""
    rates = ETS_RATES[scale]
    lines = sweep(E7_RATES, rates, seed, SECONDS[scale])
    percent = {name: [one.waiting_percent for one in runs] for name, runs in lines.items()}
    a, c, d = (percent[name][0] for name in (A, C, D))
    claims = (
        ascending(
            "B waits less, the more often it is told the time [%]",
            {**of_periodic(lines[B], rates, "waiting_percent"), "A": a},
        ),
        equal("C never waits idly [%]", c, 0),
        equal("nor does D [%]", d, 0),
    )
    figures = {"rates": str(E7_RATES), "ets_rates": list(rates), "waiting_percent": percent}
    return Result(claims, figures, {"A waits idly": [a], "C waits idly": [c]})


def plot(result: Result, path: Path) -> None:
    """Idle waiting against ETS rate."""
    draw_lines(
        result,
        path,
        "waiting_percent",
        title="On the engine nobody waits idly where time is told on demand",
        y_label="time in which tuples wait idly [%]",
    )


EXPERIMENT = Experiment(
    id="mill-spark-E6",
    title="Idle waiting of a union on the engine, under four ways to tell time",
    run=run,
    plot=plot,
    substrate="engine",
    repeats=5,
)
