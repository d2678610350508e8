"""model-E4: what does it spare to share equal cores? (conceptual model CM-E4, C20)

Twenty statistics over one window. Their cores are counted apart and shared, and so is the work of a slide.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.lab.claims import Claim, at_most
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.plotting import draw_bars
from slicemill.model.catalogue import model
from slicemill.model.classify import classify
from slicemill.model.cost import NOTHING, incremental
from slicemill.model.model import Model, shared_cores

STATISTICS = (
    *("count", "sum", "mean", "variance", "var_pop", "stddev", "sum_of_squares", "l2_norm", "skewness"),
    *("kurtosis", "range", "max", "min", "dot", "covariance", "correlation", "slope", "intercept", "r2"),
    "cosine",
)
WINDOW = 10_000


def run(seed: int, scale: Scale) -> Result:  # noqa: ARG001
    """Nothing is random here, and nothing grows."""
    models = [model(name) for name in STATISTICS]
    apart = sum(len(one.cores) for one in models)
    shared = shared_cores(models)
    figures = {
        "statistics": STATISTICS,
        "cores": {"apart": apart, "shared": len(shared)},
        "shared_cores": [str(core) for core in shared],
        "calls_per_slide": {"apart": _work(models), "shared": _work_shared(models)},
    }
    return Result(_claims(models), figures)


def plot(result: Result, path: Path) -> None:
    """Cores and calls as bars."""
    bars = {f"cores, {way}": float(count) for way, count in result.figures["cores"].items()}
    bars |= {f"calls, {way}": float(count) for way, count in result.figures["calls_per_slide"].items()}
    draw_bars(
        path,
        bars,
        title=f"{len(STATISTICS)} statistics over one window need few cores",
        y_label="cores; calls per slide",
    )


EXPERIMENT = Experiment(id="model-E4", title="Sharing equal cores", run=run, plot=plot)


def _work(models: list[Model]) -> int:
    total = NOTHING
    for one in models:
        for found in one.classes:
            total += incremental(found, WINDOW, 1)
    return total.calls


def _work_shared(models: list[Model]) -> int:
    total = NOTHING
    for core in shared_cores(models):
        total += incremental(classify(core), WINDOW, 1)
    return total.calls


def _claims(models: list[Model]) -> tuple[Claim, ...]:
    shared = len(shared_cores(models))
    apart = sum(len(one.cores) for one in models)
    return (
        at_most(f"cores of {len(models)} statistics when shared", shared, 12),
        at_most("cores when shared, over cores apart", shared / apart, 0.25),
        at_most("work per slide when shared, over work apart", _work_shared(models) / _work(models), 0.25),
    )
