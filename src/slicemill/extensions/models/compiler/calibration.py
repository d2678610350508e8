"""Measurement of what each method for computing models costs on this machine (`slicemill calibrate`, C18)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from slicemill.aggregates.calls import Tuples
from slicemill.aggregates.frames import WindowFrame
from slicemill.catalog.expressions import ColumnRef
from slicemill.extensions.models.calls import ModelCall
from slicemill.extensions.models.compiler.together import ModelCalls
from slicemill.extensions.models.cost import CoreCosts
from slicemill.extensions.models.model import expression
from slicemill.functions.vectors import Vector
from slicemill.types import DOUBLE

# Number of elements per measured window
_SIZE = 512

# Numbers of elements per slide
_OFTEN, _SELDOM, _RARELY = 8, 64, 256

_ROWS = 100 * _SIZE
_ROUNDS = 3
# Costs with which all values are updated, and costs with which all values are recomputed
_NEVER_RECOMPUTE = CoreCosts(0, 0, 0, 0, 0, keep=1, read=1, sort=1)
_ALWAYS_RECOMPUTE = CoreCosts(1, 1, 1, 1, 1, keep=0, read=0, sort=0)

Seconds = Callable[[str, int, CoreCosts], float]


def measure_costs(seconds: Seconds | None = None) -> CoreCosts:
    """Measure the nanoseconds per element of the methods that compute sums, extremes and medians of models.

    `seconds` returns the time per row of a model over windows of 512 rows, for a slide and for costs that
    select a method.
    """
    seconds_per_row = seconds or row_seconds
    loop = seconds_per_row("n", _OFTEN, _NEVER_RECOMPUTE)
    log = math.log2(_SIZE)

    def update_ns(text: str) -> float:
        return max(seconds_per_row(text, _OFTEN, _NEVER_RECOMPUTE) - loop, 0.0) * 1e9

    def recompute_ns(text: str) -> tuple[float, float]:
        """Return the nanoseconds for storing an element and for reading an element again."""
        seldom, rarely = (seconds_per_row(text, slide, _ALWAYS_RECOMPUTE) for slide in (_SELDOM, _RARELY))
        read = max(seldom - rarely, 0.0) / (_SIZE / _SELDOM - _SIZE / _RARELY)
        return max(rarely - loop - read * _SIZE / _RARELY, 0.0) * 1e9, read * 1e9

    keep, read = recompute_ns("sum(abs(x))")
    _, sort = recompute_ns("median(x)")
    return CoreCosts(
        delta=update_ns("sum(abs(x))"),
        deque=update_ns("max(x)"),
        queue=update_ns("first(x)"),
        ranked=update_ns("median(x)") / log,
        stacks=update_ns("gcd(x)"),
        keep=keep,
        read=read,
        sort=sort / log,
        measured=True,
    )


def row_seconds(text: str, slide: int, costs: CoreCosts) -> float:
    """Return the processor time per row of a model, the minimum of some rounds.

    A first round, which is not measured, compiles the loop to machine code.
    """
    calls = ModelCalls(
        [ModelCall(expression(text, ["x"]), (ColumnRef("x", DOUBLE),))],
        WindowFrame("ROWS", _SIZE - 1, slide),
        costs=costs,
    )
    values = np.random.default_rng(1).integers(1, 1000, _ROWS).astype(np.float64)
    tuples = Tuples([Vector(DOUBLE, values)], np.zeros(_ROWS, np.int32), np.arange(_ROWS))
    state, times = calls.uda.start(), []
    calls.uda.run(state, tuples)
    for _ in range(_ROUNDS):
        begin = time.process_time()
        calls.uda.run(state, tuples)
        times.append(time.process_time() - begin)
    return min(times) / _ROWS
