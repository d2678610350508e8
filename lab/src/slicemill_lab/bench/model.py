"""Benchmark of models over windows of a thousand to a million rows, in rows per CPU second of one core.

All sizes process the same rows, chunk by chunk, with windows that are filled before the measurement. Rounds
of the sizes alternate, and the best round counts, because noise of the machine only adds time. The blocking
graph is the same model without its incremental form: compiled code that reads the whole window again for each
row. It takes n times as long, so it gets fewer rows and only the smaller windows.

The second part runs eight models over one window: together, where equal cores are computed once, and each
alone. The results must be identical bit by bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from os import getloadavg
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slicemill.aggregates.calls import Tuples, Uda
from slicemill.aggregates.frames import frame_over
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import FrameUnit, Window, WindowCall
from slicemill.extensions.models.binder import with_model
from slicemill.extensions.models.calls import ModelCall, joint_state
from slicemill.extensions.models.compiler.together import ModelCalls
from slicemill.extensions.models.model import Model, expression
from slicemill.functions.vectors import Vector
from slicemill.types import DOUBLE
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.claims import Claim, at_least, at_most, timed
from slicemill_lab.experiment import Result, Scale
from slicemill_lab.model.reference import catalogue

SIZES = (1_000, 10_000, 100_000, 1_000_000)
BLOCKING_ROWS = {1_000: 10_000, 10_000: 1_000}
CHUNK = 100_000
FLAT = 1.3
TOGETHER = ("mean", "variance", "skewness", "slope", "correlation", "covariance", "r2", "dot")
WINDOW = 10_000  # in rows, for the eight models
SHARED = 0.5  # bar for the time together, relative to the sum of each alone

Floats = NDArray[np.float64]


def models(size: int) -> dict[str, Model]:
    """Return the models. The formula of the Fourier coefficient contains the size of the window."""
    return {
        "variance": expression("variance(x)"),
        "regression": expression("slope(x, y)"),
        "Fourier coefficient": expression(f"sum(cos(2*pi*3*(i - 1)/{size})*x)"),
    }


def prepared(model: Model, size: int, *, blocking: bool = False) -> Uda:
    """Compile a model over the last `size` rows. A blocking model reads the whole window for each row."""
    catalog = with_model("m", model, Catalog())
    if blocking:
        catalog.window_aggregates.clear()
    base = catalog.base_aggregates["m"]
    arguments = tuple(ColumnRef(name, DOUBLE) for name in model.parameters)
    call = WindowCall("m", arguments, False, (), Window(FrameUnit.ROWS, size - 1), base.returns.columns)
    return prepare(call, catalog)


def taker(uda: Uda, columns: int) -> Callable[[Floats], Floats]:
    """Return a function that processes the rows of one partition in order."""
    state = uda.start()

    def take(values: Floats) -> Floats:
        rows = len(values)
        vectors = [Vector(DOUBLE, values if k == 0 else values[::-1].copy()) for k in range(columns)]
        tuples = Tuples(vectors, np.zeros(rows, np.int32), np.zeros(rows, np.int64))
        found: Floats = uda.run(state, tuples).columns[0].data
        return found

    return take


def run(scale: Scale) -> Result:
    rows, rounds = (1_000_000, 3) if scale == "small" else (4_000_000, 5)
    random = np.random.default_rng(1)
    values = random.normal(10.0, 3.0, rows)
    claims: list[Claim] = []
    figures: dict[str, Any] = {}
    for name in models(SIZES[0]):
        rates, gains = _measured(name, values, rounds)
        spread = max(rates.values()) / min(rates.values())
        claims.append(
            timed(at_most(f"{name}: fastest window size over slowest, 10^3 to 10^6 rows", spread, FLAT))
        )
        for size, gain in gains.items():
            claims.append(
                timed(at_least(f"{name}: times the speed of the blocking graph, {size} rows", gain, 1.0))
            )
        figures[name] = {"rows per CPU second": rates, "times the blocking graph": gains}
    shared = _shared(values, rounds)
    claims.append(
        timed(at_most("eight models over one window: together, over apart", shared["over apart"], SHARED))
    )
    figures["eight models over one window"] = shared
    figures["method"] = f"{rows} rows after the window is full, one partition, best of {rounds} rounds"
    figures["load of the machine, 1 min"] = round(getloadavg()[0], 1)
    return Result(tuple(claims), figures)


def _measured(name: str, values: Floats, rounds: int) -> tuple[Mapping[int, float], Mapping[int, float]]:
    """Return rows per CPU second by size, and the speed relative to the blocking graph."""
    takers = {size: _filled(models(size)[name], size, values) for size in SIZES}
    best = dict.fromkeys(SIZES, float("inf"))
    for _ in range(rounds):
        for size, take in takers.items():
            best[size] = min(best[size], _cpu_seconds(take, values))
    rates = {size: len(values) / seconds for size, seconds in best.items()}
    gains = {}
    for size, rows in BLOCKING_ROWS.items():
        slow = _filled(models(size)[name], size, values, blocking=True)
        fast = _filled(models(size)[name], size, values)
        assert np.allclose(fast(values[:rows]), slow(values[:rows]), rtol=1e-9, atol=1e-9 * size), name
        gains[size] = rates[size] * min(_cpu_seconds(slow, values[:rows]) for _ in range(rounds)) / rows
    return rates, gains


def asked(name: str) -> ModelCall:
    """Return a model of the catalogue over the common columns."""
    model = catalogue.model(name)
    return ModelCall(
        model, tuple(ColumnRef(column, DOUBLE) for column in ("x", "y")[: len(model.parameters)])
    )


def _shared(values: Floats, rounds: int) -> dict[str, Any]:
    """Measure eight models together and each alone, in CPU seconds."""
    frame = frame_over(Window(FrameUnit.ROWS, WINDOW - 1))
    models = [asked(name) for name in TOGETHER]
    alone = {name: ModelCalls([one], frame) for name, one in zip(TOGETHER, models, strict=True)}
    ways = {"together": ModelCalls(models, frame), **alone}
    takers = {way: taker(calls.uda, len(calls.arguments)) for way, calls in ways.items()}
    best = dict.fromkeys(ways, float("inf"))
    for way, take in takers.items():
        _cpu_seconds(take, np.resize(values, WINDOW))
        for _ in range(rounds):
            best[way] = min(best[way], _cpu_seconds(take, values))
    together, apart = best["together"], sum(best[name] for name in TOGETHER)
    dearest = max(TOGETHER, key=best.__getitem__)
    return {
        "models": TOGETHER,
        "cores together": len(joint_state(models).cores),
        "cores apart": sum(len(joint_state([one]).cores) for one in models),
        "rows per CPU second together": len(values) / together,
        "rows per CPU second apart": len(values) / apart,
        "over apart": together / apart,
        f"over {dearest} alone, the dearest": together / best[dearest],
        "over eight times the mean alone": together / (len(TOGETHER) * best["mean"]),
    }


def _filled(model: Model, size: int, values: Floats, *, blocking: bool = False) -> Callable[[Floats], Floats]:
    """Return a function that processes rows over a full window, with all code compiled."""
    take = taker(prepared(model, size, blocking=blocking), len(model.parameters))
    _cpu_seconds(take, np.resize(values, size))
    return take


def _cpu_seconds(take: Callable[[Floats], Floats], values: Floats) -> float:
    began = time.process_time()
    for first in range(0, len(values), CHUNK):
        take(values[first : first + CHUNK])
    return time.process_time() - began


BENCHMARK = Benchmark("models over windows of all sizes, beside the blocking graph", run)
