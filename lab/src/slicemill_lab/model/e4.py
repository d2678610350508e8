"""model-E4: savings of sharing equal cores (conceptual model CM-E4, C20).

Twenty statistics over one window. Their cores, and the work of a slide, are counted apart and shared. At full
scale, compiled code is timed as well: all twenty statistics, with results at every hundredth tuple, compared
with their distinct cores alone, which are only summed.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slicemill.aggregates.calls import Tuples
from slicemill.aggregates.frames import frame_over
from slicemill.catalog.expressions import ColumnRef, Expr
from slicemill.catalog.queries import FrameUnit, Window
from slicemill.extensions.models.calls import ModelCall
from slicemill.extensions.models.compiler.together import ModelCalls
from slicemill.extensions.models.cores import classify
from slicemill.extensions.models.cost import NOTHING, incremental
from slicemill.extensions.models.model import Model, expression, shared_cores
from slicemill.functions.vectors import Vector
from slicemill.types import DOUBLE
from slicemill_lab.claims import Claim, at_most, near, timed
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.model.reference.catalogue import model
from slicemill_lab.plotting import draw_bars

STATISTICS = (
    *("count", "sum", "mean", "variance", "var_pop", "stddev", "sum_of_squares", "l2_norm", "skewness"),
    *("kurtosis", "range", "max", "min", "dot", "covariance", "correlation", "slope", "intercept", "r2"),
    "cosine",
)
WINDOW = 10_000
SLIDE = 100
TUPLES = 500_000


def run(seed: int, scale: Scale) -> Result:
    """Count cores and calls, which are deterministic. At full scale, measure time as well."""
    models = [model(name) for name in STATISTICS]
    apart = sum(len(one.cores) for one in models)
    shared = shared_cores(models)
    figures = {
        "statistics": STATISTICS,
        "cores": {"apart": apart, "shared": len(shared)},
        "shared_cores": [str(core) for core in shared],
        "calls_per_slide": {"apart": _work(models), "shared": _work_shared(models)},
    }
    claims = _claims(models)
    if scale == "full":
        spent_ns = _timed(models, seed)
        figures["ns_per_tuple"] = spent_ns
        ratio = spent_ns["statistics"] / spent_ns["distinct cores"]
        claims = (*claims, timed(near("time of all statistics, over that of their distinct cores", ratio, 1)))
    return Result(claims, figures)


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


def _timed(models: list[Model], seed: int) -> dict[str, float]:
    """Return CPU nanoseconds per tuple over full windows, best of five rounds."""
    cores = expression(" + ".join(str(core) for core in shared_cores(models)))
    values = np.random.default_rng(seed).normal(10.0, 3.0, (2, TUPLES))
    return {"statistics": _ns(models, values), "distinct cores": _ns([cores], values)}


def _ns(models: list[Model], values: NDArray[np.float64]) -> float:
    columns = {name: ColumnRef(name, DOUBLE) for name in ("x", "y")}
    asked = [ModelCall(one, tuple(columns[name] for name in one.parameters)) for one in models]
    calls = ModelCalls(asked, frame_over(Window(FrameUnit.ROWS, WINDOW - 1, SLIDE)))
    state = calls.uda.start()
    given: dict[Expr, NDArray[np.float64]] = dict(zip(columns.values(), values, strict=True))
    vectors = [Vector(DOUBLE, given[argument]) for argument in calls.arguments]
    tuples = Tuples(vectors, np.zeros(TUPLES, np.int32), np.zeros(TUPLES, np.int64))
    calls.uda.run(state, tuples)  # compiles, and fills the window
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        calls.uda.run(state, tuples)
        best = min(best, time.process_time() - began)
    return best / TUPLES * 1e9


def _claims(models: list[Model]) -> tuple[Claim, ...]:
    shared = len(shared_cores(models))
    apart = sum(len(one.cores) for one in models)
    return (
        at_most(f"cores of {len(models)} statistics when shared, over cores apart", shared / apart, 1),
        at_most("work per slide when shared, over work apart", _work_shared(models) / _work(models), 1),
    )
