"""Window aggregates of the reference engine and their cost per tuple, for mill-E10 to mill-E13.

Cost is counted in function calls, which are the same on every machine and in every run. Time is reported as
well.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import cast

from slicemill.aggregates.definition import (
    Panes,
    RowAggregate,
    RowCall,
    Strategy,
    WindowAccumulator,
    base_of,
    strategy_of,
    window_version,
)
from slicemill.aggregates.frames import Inwindow, WindowFrame
from slicemill.aggregates.udf.lookup import resolve_aggregate
from slicemill.binder import bind
from slicemill.operators.row_step import RowOperator
from slicemill.types import Row, Timed
from slicemill_lab.calls import calls_made
from slicemill_lab.plotting import curve, draw_curves
from slicemill_oracle.operators.group_aggregate import GroupAggregateOperator
from slicemill_oracle.operators.window_aggregate import FramedCall, WindowAggregateOperator

# Number of timed tuples, and of counted ones.
MEASURED = 10


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost per tuple: mean of calls, and median of times, as the machine is shared."""

    calls: float
    us: float
    answers: tuple[float, ...]


def defined(esl: str, name: str) -> RowAggregate:
    return resolve_aggregate(name, bind(esl).catalog)


def over_rows(definition: RowAggregate, window: int, slide: int | None = None) -> WindowAggregateOperator:
    """`agg(row) OVER (ROWS window - 1 PRECEDING [SLIDE slide])`."""
    call = RowCall(definition, lambda row: row)
    return WindowAggregateOperator([FramedCall(call, WindowFrame("ROWS", window - 1, slide))])


def over_all(definition: RowAggregate) -> GroupAggregateOperator:
    """`SELECT agg(row)` over the bare stream."""
    return GroupAggregateOperator([RowCall(definition, lambda row: row)])


def cost(operator: RowOperator, rows: Sequence[Row], measured: int = MEASURED) -> Cost:
    """Send all rows through an operator. Of the last 2 * `measured`, half are timed and half counted."""
    tuples = [Timed(ts, row) for ts, row in enumerate(rows)]
    out: list[Timed] = []
    times: list[float] = []

    def send(part: Sequence[Timed]) -> None:
        for tuple_ in part:
            out.extend(operator.process(0, tuple_))

    send(tuples[: -2 * measured])
    out.clear()
    for tuple_ in tuples[-2 * measured : -measured]:
        start = time.perf_counter()
        out.extend(operator.process(0, tuple_))
        times.append(time.perf_counter() - start)
    calls = calls_made(lambda: send(tuples[-measured:]))
    answers = tuple(cast(float, timed.row[-1]) for timed in out)
    return Cost(calls / measured, median(times) * 1_000_000, answers)


def most_values(definition: RowAggregate, window: int, slide: int, rows: Sequence[Row]) -> int:
    """Return the greatest number of values in a sliding aggregate: in its window and the current pane."""
    windows: list[Inwindow] = []
    operator = over_rows(_watched(definition, windows), window, slide)
    in_progress = int(
        strategy_of(definition, WindowFrame("ROWS", window - 1, slide)) in (Strategy.PANES, Strategy.TUMBLE)
    )
    most = 0
    for ts, row in enumerate(rows):
        operator.process(0, Timed(ts, row))
        most = max(most, sum(map(len, windows)))
    return most + in_progress


def _watched(definition: RowAggregate, windows: list[Inwindow]) -> RowAggregate:
    """Return the same aggregate, which records the windows that it creates."""
    make = window_version(definition)

    def noted(inwindow: Inwindow) -> WindowAccumulator:
        windows.append(inwindow)
        return make(inwindow)

    if definition.algebraic:
        panes = definition.panes or Panes(base_of(definition), definition)
        combine = _watched(replace(panes.combine, algebraic=False), windows)
        return replace(definition, panes=replace(panes, combine=combine))
    return replace(definition, window=noted)


def draw_costs(
    path: Path, sizes: Sequence[float], calls: Mapping[str, Sequence[float]], title: str, x_label: str
) -> None:
    """Plot calls per tuple against a size, with logarithmic axes."""
    draw_curves(
        path,
        {name: curve(sizes[: len(line)], [line]) for name, line in calls.items()},
        title=title,
        x_label=x_label,
        y_label="function calls per tuple",
        log_x=True,
        log_y=True,
    )
