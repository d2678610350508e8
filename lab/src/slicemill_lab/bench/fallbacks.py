"""Benchmark of calls without a vectorised kernel, and of decimals compared with other numbers.

Every scalar function and operator is evaluated over columns of distinct values, for each combination of
argument types. A call without a kernel is evaluated row by row, once per distinct value.

The second part runs queries over decimals, and the same queries over integers and doubles.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import getloadavg
from typing import Any

import numpy as np
from rich.table import Table

from slicemill.catalog.expressions import Expr
from slicemill.functions.evaluate import compile_or_null, fallbacks
from slicemill.functions.render import render
from slicemill.functions.row_only import hint_by_row
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.inputs import scalar_calls
from slicemill_lab.bench.inputs.keyed_states import KeyedQuery, rows_of
from slicemill_lab.bench.measuring.keyed_states import RunningTasks
from slicemill_lab.claims import at_most, timed
from slicemill_lab.experiment import Result, Scale

_KEYS = 1_000
DECIMALS: Mapping[str, tuple[str, float | None]] = {
    "d > 100.00": ("SELECT k FROM s WHERE d > 100.00", 0.08),
    "i > 100": ("SELECT k FROM s WHERE i > 100", None),
    "avg of decimal, all history": ("SELECT k, avg(d) AS x FROM s GROUP BY k", 0.3),
    "sum of decimal, all history": ("SELECT k, sum(d) AS x FROM s GROUP BY k", None),
    "avg of decimal, 100 ms": ("SELECT k, avg(d) AS x FROM s [RANGE 100 MILLISECONDS] GROUP BY k", 0.3),
    "avg of decimal, OVER 1 s": (
        "SELECT k, avg(d) OVER (PARTITION BY k RANGE 1 SECOND PRECEDING) AS x FROM s",
        0.3,
    ),
    "avg of double, OVER 1 s": (
        "SELECT k, avg(v) OVER (PARTITION BY k RANGE 1 SECOND PRECEDING) AS x FROM s",
        None,
    ),
}
"""Queries, with the bar in CPU seconds per million rows."""


@dataclass(frozen=True, slots=True)
class FallbackSizes:
    """`rows` of each call; `run_rows` of each run of a query, and the number of measured runs and rounds."""

    rows: int
    run_rows: int
    runs: int
    rounds: int


SIZES: Mapping[Scale, FallbackSizes] = {
    "small": FallbackSizes(500, 10_000, 2, 1),
    "full": FallbackSizes(20_000, 100_000, 5, 3),
}


@dataclass(frozen=True, slots=True)
class CallByRow:
    """Call that is evaluated row by row, with its CPU microseconds per row."""

    text: str
    us: float
    hint: str


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    calls = list(dict.fromkeys(scalar_calls.calls()))
    by_row = [call for call in calls if fallbacks(call, scalar_calls.SCHEMA)]
    unknown = [render(call) for call in calls if (hint_by_row(call) is None) == (call in by_row)]
    found = sorted((measured(call, sizes) for call in by_row), key=lambda one: -one.us)
    costs = {name: cpu_per_million(select, sizes) for name, (select, _) in DECIMALS.items()}
    claims = (
        at_most("calls of which `slicemill check` says something else", len(unknown), 0, "; ".join(unknown)),
        *(
            timed(at_most(f"{name}: CPU seconds per million rows", costs[name], bar))
            for name, (_, bar) in DECIMALS.items()
            if bar is not None
        ),
    )
    figures = {
        "how": f"{sizes.rows} rows that differ, in one process; the least of {sizes.rounds + 1} rounds. "
        f"Queries: {sizes.runs} runs of {sizes.run_rows} rows after one that compiles, {_KEYS} keys",
        "load of the machine, 1 min": round(getloadavg()[0], 1),
        "calls": len(calls),
        "row by row, CPU us of a row": {one.text: [round(one.us, 2), one.hint] for one in found},
        "CPU s per million rows": {name: round(cost, 3) for name, cost in costs.items()},
    }
    return Result(claims, figures)


def measured(call: Expr, sizes: FallbackSizes) -> CallByRow:
    """Evaluate a call over distinct rows. Rows on which it fails are NULL."""
    table, evaluate = scalar_calls.rows(sizes.rows), compile_or_null([call], scalar_calls.SCHEMA)
    best = float("inf")
    for _ in range(sizes.rounds + 1):
        began = time.process_time()
        evaluate(table)
        best = min(best, time.process_time() - began)
    return CallByRow(render(call), best / sizes.rows * 1e6, hint_by_row(call) or "")


def cpu_per_million(select: str, sizes: FallbackSizes) -> float:
    """Return the CPU seconds of a query per million rows."""
    rng = np.random.default_rng(1)
    tables = [
        rows_of(rng.integers(0, _KEYS, sizes.run_rows), number * sizes.run_rows)
        for number in range(sizes.runs + 1)
    ]
    best = float("inf")
    for _ in range(sizes.rounds):
        tasks = RunningTasks(KeyedQuery("", select).script)
        tasks.run(tables[0])
        began = time.process_time()
        for table in tables[1:]:
            tasks.run(table)
        best = min(best, time.process_time() - began)
    return best / (sizes.runs * sizes.run_rows) * 1e6


def tables(result: Result) -> Sequence[Table]:
    calls = Table("call", title="Row by row: CPU microseconds of a row")
    calls.add_column("us", justify="right")
    calls.add_column("instead")
    figures: Mapping[str, Any] = result.figures
    for text, (us, hint) in figures["row by row, CPU us of a row"].items():
        calls.add_row(text, f"{us:.2f}", hint)
    queries = Table("query", title="CPU seconds per million rows")
    queries.add_column("s", justify="right")
    for name, cost in figures["CPU s per million rows"].items():
        queries.add_row(name, f"{cost:.3f}")
    return [calls, queries]


BENCHMARK = Benchmark("Calls that run row by row, and what decimals cost", run, tables)
