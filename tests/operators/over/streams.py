"""Random tuples and window calls, and what the reference makes of them."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from slicemill import types as t
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.catalog import Catalog, TimestampKind
from slicemill.catalog.expressions import ColumnRef, Expr, Literal
from slicemill.catalog.queries import FrameUnit, Window, WindowCall
from slicemill.columns.rows import timed_rows, to_table
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.row_step import RowState, RowStep
from slicemill.operators.step import StepContext
from slicemill.operators.window import spec
from slicemill.time import END
from slicemill.types import Column, Schema, Timed, Type
from slicemill_oracle.operators.window_aggregate import WindowAggregateOperator
from slicemill_oracle.translate import window_call_of

NAN, INF = float("nan"), float("inf")
MONEY = t.decimal(6, 2)
POOLS: dict[str, tuple[Type, list[Any]]] = {
    "k": (t.DOUBLE, [0.0, -0.0, 1.5, NAN, None]),
    "g": (t.VARCHAR, ["a", "b", None]),
    "i": (t.INT, [0, 1, -1, 7, 2**31 - 1, None]),
    "b": (t.BIGINT, [0, 3, -(2**40), 2**53 + 1, -(10**15), None]),
    "d": (t.DOUBLE, [0.0, -0.0, 0.1, 0.25, -3.0, 1e10, 1e-9, None]),
    "wild": (t.DOUBLE, [0.1, 1e300, -1e300, 1e-300, 5e-324, NAN, INF, -INF, None, 1.0, 3.0]),
    "m": (MONEY, [Decimal(text) for text in ("0.00", "0.01", "-1.50", "99.99", "1234.56")] + [None]),
    "s": (t.VARCHAR, ["", "x", "yy", "ü", "日本", None]),
    "q": (t.BOOLEAN, [True, True, False, None]),
    "w": (t.TIMESTAMP, [0, 10**15, -1, None]),
}
SCHEMA = Schema(tuple(Column(name, type_) for name, (type_, _) in POOLS.items()))
FITTING = {"number": "ibdm", "any": "ibdmsqwk", "element": "ibdmsqwk", "string": "s", "boolean": "q"}
NUMBERS = [*FITTING["number"], "wild"]


def column(name: str) -> ColumnRef:
    return ColumnRef(name, POOLS[name][0])


def arguments(random: Random, name: str) -> tuple[Expr, ...]:
    builtin = BUILTINS[name]
    if builtin.takes_star and random.random() < 0.3:
        return ()
    found: list[Expr] = []
    for index, wanted in enumerate(builtin.parameters):
        if index == builtin.constant:
            if wanted == "number":
                found.append(Literal(random.choice([0.0, 0.25, 0.5, 0.9, 1.0]), t.DOUBLE))
            elif wanted == "integer":
                found.append(Literal(random.choice([1, 2, 3, 9]), t.INT))
            elif random.random() < 0.5:
                found.append(Literal(random.choice(["", "-", "::"]), t.VARCHAR))
        else:
            choices = NUMBERS if wanted == "number" else [*FITTING[wanted], *(["wild"] * (wanted == "any"))]
            found.append(column(random.choice(choices)))
    return tuple(found)


def call(
    random: Random, name: str, window: Window, partition_by: tuple[Expr, ...], number: int
) -> WindowCall:
    given = arguments(random, name)
    distinct = bool(given) and BUILTINS[name].takes_distinct and random.random() < 0.5
    type_ = BUILTINS[name].result(given[0].type if given else t.INT)
    return WindowCall(name, given, distinct, partition_by, window, (Column(f"value {number}", type_),))


def window(random: Random) -> Window:
    """Any strategy of the dispatch table."""
    frame = random.choice([FrameUnit.ROWS, FrameUnit.RANGE])
    extent = random.choice([None, 0, 1, 2, 3, 5, 9])
    slide = random.choice([None, None, 1, 2, 3, 4, 7])
    if frame is FrameUnit.RANGE and extent is not None and random.random() < 0.25:
        return Window(frame, extent, active=True)
    if frame is FrameUnit.RANGE and extent == 0 and slide is not None:
        slide = None
    return Window(frame, extent, slide)


PARTITIONS: list[tuple[Expr, ...]] = [(), (column("k"),), (column("g"),), (column("k"), column("g"))]


def tuples(random: Random, rows: int) -> list[Timed]:
    ts, out = random.choice([0, -5, 1000]), []
    for _ in range(rows):
        ts += random.choice([0, 0, 1, 1, 2, 5])
        out.append(Timed(ts, tuple(random.choice(pool) for _, pool in POOLS.values())))
    return out


def reference(calls: list[WindowCall], known: RowState | None = None) -> RowStep:
    catalog = Catalog()
    node = Node("q", spec.WindowAggregate(tuple(calls)), (), SCHEMA, TimestampKind.EXTERNAL)
    context = StepContext(node=node, graph=QueryGraph({"q": node}), catalog=catalog, tables={}, state=None)
    operator = WindowAggregateOperator([window_call_of(call, SCHEMA, context) for call in calls])
    return RowStep(operator, [SCHEMA], output_schema(calls), known=known)


def output_schema(calls: list[WindowCall]) -> Schema:
    return Schema((*SCHEMA.columns, *(call.columns[0] for call in calls)))


def table(rows: list[Timed]) -> pa.Table:
    return to_table(rows, SCHEMA, list(range(len(rows))))


def shown(result: pa.Table, calls: list[WindowCall]) -> list[str]:
    return [repr(row) for row in timed_rows(result, output_schema(calls))]


def pieces(random: Random, rows: list[Timed]) -> list[tuple[list[Timed], int]]:
    """The tuples in runs, each with how far the input is complete behind it; the last run ends it."""
    out, start = [], 0
    while start < len(rows):
        stop = min(len(rows), start + random.choice([0, 1, 1, 2, 5, 20]))
        upcoming = rows[stop].ts if stop < len(rows) else rows[-1].ts + 20
        earlier = rows[stop - 1].ts if stop else upcoming
        out.append(
            (rows[start:stop], random.choice([-END, earlier, upcoming, random.randint(earlier, upcoming)]))
        )
        start = stop
    complete = -END
    monotone = []
    for part, until in out:
        complete = max(complete, until)
        monotone.append((part, complete))
    return [*monotone, ([], END)]
