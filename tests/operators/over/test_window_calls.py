"""Models of several queries keep equal cores once, and nobody sees it, whoever comes and goes."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregates.frames import WindowFrame
from slicemill.aggregates.udf.compiler.layout import PYTHON
from slicemill.binder import bind
from slicemill.catalog.expressions import Expr
from slicemill.columns.rows import timed_rows, to_table
from slicemill.extensions.models.calls import ModelCall
from slicemill.extensions.models.compiler import together
from slicemill.extensions.models.compiler.together import ModelCalls
from slicemill.extensions.models.cost import CoreCosts
from slicemill.operators.window.routines import CallsState
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.storage.checkpoints import read_checkpoint, write_checkpoint
from slicemill.time import END
from slicemill.types import Timed
from support.tasks import exchanges_of, run_subtasks

STREAM = """CREATE STREAM s(k int, x real, y real, at timestamp) ORDER BY at;
CREATE MODEL centre(x REAL) AS mean(x);
CREATE MODEL spread(x REAL) AS let m = mean(x) in sum((x - m)^2)/n;
CREATE MODEL far(x REAL) AS let m = mean(x) in sum(abs(x - m)) + max(x);
CREATE MODEL fading(x REAL) AS sum(x * 0.5^age);
CREATE MODEL ratio(x REAL, y REAL) AS sum(x/y);
"""
SCHEMA = bind(STREAM).catalog.relation("s").schema  # type: ignore[union-attr]
CALLS = [
    "centre(x)", "centre(y)", "spread(x)", "spread(y + 1)", "slope(x, y)", "dot(y, x)", "far(x)",
    "ratio(x, y)", "fading(x, at)", "count(x)",
]  # fmt: skip
WINDOWS = [
    "ROWS 2 PRECEDING",
    "PARTITION BY k ROWS 2 PRECEDING",
    "PARTITION BY k RANGE 2 SECONDS PRECEDING",
    "PARTITION BY k RANGE 4 SECONDS PRECEDING SLIDE 2 SECONDS",
    "ROWS UNBOUNDED PRECEDING",
]
SECOND = 1_000_000
Runs = list[tuple[list[Timed], int]]


@dataclass(frozen=True)
class Query:
    """A query that lives from one run to another."""

    calls: tuple[str, ...]
    window: str
    where: str
    first: int
    last: int

    def text(self, name: str) -> str:
        calls = ", ".join(f"{call} OVER ({self.window}) AS c{n}" for n, call in enumerate(self.calls))
        return f"CREATE QUERY {name} AS SELECT k, {calls} FROM s {self.where};"


@st.composite
def queries(draw: st.DrawFn) -> Query:
    first = draw(st.sampled_from([0, 0, 0, 1]))
    return Query(
        tuple(draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True))),
        draw(st.sampled_from(WINDOWS)),
        draw(st.sampled_from(["", "", "WHERE y > 1"])),
        first,
        draw(st.sampled_from([2, 2, first])),
    )


NUMBERS = st.sampled_from([0.1, 0.3, 1.0, 2.5, -7.0, 1e6, 1e200, 0.0, None, math.nan])


@st.composite
def runs(draw: st.DrawFn) -> Runs:
    """Three runs: tuples, and how far the stream is complete behind them."""
    made, now = [], 0
    for _ in range(3):
        tuples = []
        for _ in range(draw(st.integers(0, 8))):
            now += draw(st.integers(0, 2)) * SECOND
            tuples.append(Timed(now, (draw(st.integers(0, 1)), draw(NUMBERS), draw(NUMBERS), now)))
        made.append((tuples, now))
    return [*made[:-1], (made[-1][0], END)]


def run(
    texts: dict[str, str],
    lives: dict[str, range],
    runs: Runs,
    subtasks: int,
    seen: list[CallsState] | None = None,
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The rows of queries that come and go, with state that is stored and loaded between runs; and errors."""
    found: dict[str, list[str]] = {name: [] for name in texts}
    failed: dict[str, str] = {}
    stored: dict[tuple[str, int], list[list[Any]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, (tuples, until) in enumerate(runs):
            live = [text for query, text in texts.items() if number in lives[query]]
            catalog = bind(STREAM + "".join(live)).catalog
            graph = share(optimize(build_graph(catalog)), catalog)
            table = to_table(tuples, SCHEMA, [t.ts for t in tuples])
            kept, stored = stored, {}
            for task in split_into_tasks(graph):
                plan = TaskPlan(
                    task=task,
                    graph=graph,
                    catalog=catalog,
                    tables={},
                    exchanges=exchanges_of(task, graph, subtasks),
                )
                programs = [
                    TaskProgram(plan, read_checkpoint(folder, kept.get((task.id, subtask), ())))
                    for subtask in range(plan.subtasks)
                ]
                for outcomes in run_subtasks(programs, {"s": table}, {"s": until}):
                    for outcome in outcomes:
                        failed |= outcome.errors
                        for log, rows in outcome.tables.items():
                            found[log] += [repr((t.ts, t.row)) for t in timed_rows(rows, graph[log].schema)]
                for subtask, program in enumerate(programs):
                    stored[task.id, subtask] = write_checkpoint(folder, program.states)
                    if seen is not None:
                        seen += [s for s in program.states.values() if isinstance(s, CallsState)]
    return {name: sorted(rows) for name, rows in found.items()}, failed


ROWS: Runs = [
    ([Timed(n * SECOND, (n % 2, n * 0.1, 7.0 - n, n * SECOND)) for n in range(first, first + 6)], first + 5)
    for first in (0, 6, 12)
]
OVER = "OVER (PARTITION BY k ROWS 2 PRECEDING)"


@cache
def calls_as_python(
    asked: tuple[ModelCall, ...],
    frame: WindowFrame | None,
    arguments: tuple[Expr, ...] | None = None,
    costs: CoreCosts | None = None,
) -> ModelCalls:
    return ModelCalls(asked, frame, arguments, PYTHON, costs)


@contextmanager
def as_python() -> Iterator[None]:
    """The code of models as Python, which need not be compiled; machine code is tested on Spark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together, "model_calls", calls_as_python)
        yield


@pytest.mark.slow_cpu
@settings(max_examples=15)
@given(st.lists(queries(), min_size=2, max_size=4), runs(), st.sampled_from([1, 2]))
def test_each_query_gives_what_it_gives_alone(chosen: list[Query], given: Runs, subtasks: int) -> None:
    texts = {f"q{n}": query.text(f"q{n}") for n, query in enumerate(chosen)}
    lives = {f"q{n}": range(query.first, query.last + 1) for n, query in enumerate(chosen)}
    with as_python():
        found, failed = run(texts, lives, given, subtasks)
        assert not failed
        for name, text in texts.items():
            assert run({name: text}, lives, given, subtasks)[0][name] == found[name]


def kept(state: CallsState) -> list[tuple[int, int]]:
    """Of each routine, how many models ask, and how many sums are kept for them."""
    return [
        (
            len(r.asked),
            sum(re.fullmatch(r"h\d+", name) is not None for name in r.accumulators.arrays["S"].dtype.names),
        )
        for r in state.routines.values()
    ]


def test_cores_are_kept_once_for_all_who_began_together() -> None:
    """n is counted in any case; then there are the sums of x, x², y and xy."""
    texts = {
        "a": f"CREATE QUERY a AS SELECT centre(x) {OVER} AS m, spread(x) {OVER} AS s FROM s;",
        "b": f"CREATE QUERY b AS SELECT slope(x, y) {OVER} AS l, centre(x) {OVER} AS m FROM s;",
        "c": f"CREATE QUERY c AS SELECT centre(x) {OVER} AS m FROM s;",
    }
    seen: list[CallsState] = []
    with as_python():
        run(texts, {"a": range(3), "b": range(2), "c": range(1, 3)}, ROWS, 1, seen)
    together, with_newcomer, without_b = seen
    assert kept(together) == [(3, 4)]
    assert kept(with_newcomer) == [(3, 4), (1, 1)]  # who comes later has seen less
    assert kept(without_b) == [(2, 2), (1, 1)]  # what only others had is gone


def test_a_query_whose_argument_fails_stops_alone() -> None:
    texts = {
        "good": f"CREATE QUERY good AS SELECT spread(x) {OVER} AS m FROM s;",
        "bad": f"CREATE QUERY bad AS SELECT centre(x) {OVER} AS m, centre(10 / k) {OVER} AS z FROM s;",
    }
    with as_python():
        found, failed = run(texts, {"good": range(3), "bad": range(3)}, ROWS, 1)
        alone, _ = run({"good": texts["good"]}, {"good": range(3)}, ROWS, 1)
    assert list(failed) == ["bad"] and "zero" in failed["bad"]
    assert found["good"] == alone["good"]
    assert found["bad"] == []
