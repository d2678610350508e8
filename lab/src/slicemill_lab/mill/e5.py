"""mill-E5: latency of idle-waiting, and savings of enabling timestamps (E5, M24-M26).

The union query without ETS (A), with heartbeats on the sparse stream at varying rate (B), with on-demand ETS
(C), and over latent streams, which never wait (D). The rates of this experiment are not printed. Both rates
that fit its text are used (X10).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from pathlib import Path

from slicemill_lab.claims import Claim, ascending
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.graphs import E3_RATES, E7_RATES, GraphRun, Rates, sweep
from slicemill_lab.plotting import Curve, curve, draw_curves

ETS_RATES: Mapping[Scale, tuple[float, ...]] = {"small": (1, 10, 100, 500), "full": (1, 10, 100, 500, 1000)}
SECONDS: Mapping[Scale, Mapping[Rates, float]] = {
    "small": {E3_RATES: 10, E7_RATES: 100},
    "full": {E3_RATES: 100, E7_RATES: 1000},
}


def run(seed: int, scale: Scale) -> Result:
    """Mean latency of the four lines, at both rate settings."""
    claims: list[Claim] = []
    measured: dict[str, list[float]] = {}
    latency = {}
    for rates, seconds in SECONDS[scale].items():
        lines = sweep(rates, ETS_RATES[scale], seed, seconds)
        latency[str(rates)] = {name: [line.mean_latency_ms for line in runs] for name, runs in lines.items()}
        claims += _claims(rates, ETS_RATES[scale], lines)
        a, c, d = (lines[name][0].mean_latency_ms for name in ("A no ETS", "C on-demand ETS", "D latent"))
        measured[f"{rates}: A over C - D"] = [log10(a / (c - d))]
    figures = {"ets_rates": list(ETS_RATES[scale]), "mean_latency_ms": latency}
    return Result(tuple(claims), figures, measured)


def plot(result: Result, path: Path) -> None:
    """Latency against ETS rate, at both rate settings."""
    rates = result.figures["ets_rates"]
    lines: dict[str, Curve] = {}
    for setting, latency in result.figures["mean_latency_ms"].items():
        for name, values in latency.items():
            lines[f"{name}, {setting}"] = curve(rates, [values * (len(rates) // len(values))])
    draw_curves(
        path,
        lines,
        title="On-demand ETS costs next to nothing over no waiting at all; heartbeats never get there",
        x_label="periodic ETS per second",
        y_label="mean latency [ms]",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="mill-E5",
    title="Latency of a union without, with periodic and with on-demand ETS, and latent",
    run=run,
    plot=plot,
    repeats=5,
)


def _claims(rates: Rates, ets_rates: tuple[float, ...], lines: Mapping[str, list[GraphRun]]) -> list[Claim]:
    a, c, d = (lines[name][0].mean_latency_ms for name in ("A no ETS", "C on-demand ETS", "D latent"))
    b = [line.mean_latency_ms for line in lines["B periodic ETS"]]
    falling = {f"{rate:g}/s": value for rate, value in zip(ets_rates, b, strict=True)}
    return [
        ascending(
            f"{rates}: B falls steadily with the ETS rate and never reaches C [ms]",
            {"C": c, **dict(reversed(falling.items())), "A": a},
        ),
        ascending(
            f"{rates}: what C takes more than D is little against what A takes [ms]",
            {"C - D": c - d, "A": a},
            note=f"C - D is {c - d:.3f} ms at our step costs; about 0.1 ms is printed.",
        ),
    ]
