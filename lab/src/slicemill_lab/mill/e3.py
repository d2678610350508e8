"""mill-E3: execution strategies of a union with a sparse stream (stream-mill E3, M25).

The union of a busy and a sparse stream with internal timestamps runs depth first and breadth first, without
enabling timestamps and with on-demand ones. Without them, the wait of every tuple for the sparse stream
dominates the latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slicemill_lab.claims import ascending, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.graphs import E3_RATES, run_union, union_query
from slicemill_lab.plotting import curve, draw_curves
from slicemill_oracle.ets import EtsMode, NoEts, OnDemand
from slicemill_oracle.nos import Strategy

SECONDS: Mapping[Scale, float] = {"small": 10, "full": 200}
STRATEGIES: tuple[Strategy, ...] = ("DFS", "BFS")
MODES: Mapping[str, EtsMode] = {"without ETS": NoEts(), "with on-demand ETS": OnDemand()}


def run(seed: int, scale: Scale) -> Result:
    """Mean latency by strategy and mode, over the same arrivals."""
    latency_ms = {
        f"{strategy} {name}": run_union(
            E3_RATES, union_query(strategy, mode), seed, SECONDS[scale]
        ).mean_latency_ms
        for strategy in STRATEGIES
        for name, mode in MODES.items()
    }
    claims = (
        near(
            "without ETS the strategies are alike: BFS / DFS mean latency",
            latency_ms["BFS without ETS"] / latency_ms["DFS without ETS"],
            1,
        ),
        *(
            ascending(
                f"{strategy}: latency falls dramatically with ETS [ms]",
                {name: latency_ms[f"{strategy} {name}"] for name in reversed(list(MODES))},
            )
            for strategy in STRATEGIES
        ),
    )
    return Result(claims, {"rates": str(E3_RATES), "seconds": SECONDS[scale], "mean_latency_ms": latency_ms})


def plot(result: Result, path: Path) -> None:
    """Latency without and with ETS, a line per strategy."""
    latency_ms = result.figures["mean_latency_ms"]
    draw_curves(
        path,
        {s: curve((0, 1), [[latency_ms[f"{s} {name}"] for name in MODES]]) for s in STRATEGIES},
        title="Enabling timestamps matter by orders of magnitude, the strategy does not",
        x_label="0 = without ETS, 1 = with on-demand ETS",
        y_label="mean latency [ms]",
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="mill-E3", title="Latency of a union, DFS and BFS, with and without on-demand ETS", run=run, plot=plot
)
