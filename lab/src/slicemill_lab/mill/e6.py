"""mill-E6: share of time in which the union waits idly (stream-mill E6, M21).

The lines of mill-E5. The union waits idly while it holds data on one input and the other input is empty. The
printed figures fit the rates of mill-E7; at those of mill-E3 the same steps occur twenty times as often
(X10).
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import Claim, ascending, at_least, at_most, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.e5 import ETS_RATES, SECONDS
from slicemill_lab.mill.graphs import E7_RATES, Rates, sweep
from slicemill_lab.plotting import Curve, curve, draw_curves


def run(seed: int, scale: Scale) -> Result:
    """Idle-waiting of the four lines, at both rate settings."""
    claims: list[Claim] = []
    measured: dict[str, list[float]] = {}
    idle = {}
    for rates, seconds in SECONDS[scale].items():
        lines = sweep(rates, ETS_RATES[scale], seed, seconds)
        percent = {name: [line.idle_percent for line in runs] for name, runs in lines.items()}
        idle[str(rates)] = percent
        claims += _claims(rates, dict(zip(ETS_RATES[scale], percent["B periodic ETS"], strict=True)), percent)
        measured[f"{rates}: A waits idly"] = percent["A no ETS"]
        measured[f"{rates}: C waits idly"] = percent["C on-demand ETS"]
    return Result(tuple(claims), {"ets_rates": list(ETS_RATES[scale]), "idle_percent": idle}, measured)


def plot(result: Result, path: Path) -> None:
    """Idle-waiting against ETS rate, at both rate settings."""
    rates = result.figures["ets_rates"]
    lines: dict[str, Curve] = {}
    for setting, idle in result.figures["idle_percent"].items():
        for name, values in idle.items():
            lines[f"{name}, {setting}"] = curve(rates, [values * (len(rates) // len(values))])
    draw_curves(
        path,
        lines,
        title="Heartbeats must be as frequent as tuples to end idle-waiting; on-demand ETS ends it at once",
        x_label="periodic ETS per second",
        y_label="time the union waits idly [%]",
        log_x=True,
    )


EXPERIMENT = Experiment(
    id="mill-E6", title="Idle-waiting of a union under four ways to tell time", run=run, plot=plot, repeats=5
)


def _claims(rates: Rates, periodic: dict[float, float], percent: dict[str, list[float]]) -> list[Claim]:
    c = percent["C on-demand ETS"][0]
    claims = [
        near(f"{rates}: A waits idly nearly all the time [%]", percent["A no ETS"][0], 99),
        ascending(
            f"{rates}: B waits less, the more often it is told the time [%]",
            {f"{rate:g}/s": periodic[rate] for rate in sorted(periodic, reverse=True)},
        ),
    ]
    if rates == E7_RATES:
        return [
            *claims,
            at_most(f"{rates}: C hardly ever waits [%]", c, 0.1),
            at_least(f"{rates}: B at 10 ETS/s still waits most of the time [%]", periodic[10], 50),
            at_most(
                f"{rates}: C is close to D, apart by [percentage points]", c - percent["D latent"][0], 0.1
            ),
        ]
    per_tuple_us = c / 100 * 1_000_000 / rates.busy
    return [
        *claims,
        ascending(
            f"{rates}: C waits less than B at any rate [%]",
            {"C": c, "B": min(periodic.values())},
            note=f"Printed: below 0.1 %, which fits {E7_RATES}. Each of the {rates.busy:g} tuples per second "
            f"waits {per_tuple_us:.1f} µs for its enabling timestamp, whatever the rate.",
        ),
        at_least(
            f"{rates}: B at 100 ETS/s still waits most of the time [%]",
            periodic[100],
            50,
            note="Heartbeats must match the rate of the busy stream, which is higher here.",
        ),
    ]
