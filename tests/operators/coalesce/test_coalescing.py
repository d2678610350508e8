"""Coalescing tables gives the rows of the reference, whatever the borders and restarts."""

from __future__ import annotations

from random import Random

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.over.streams import NAN, pieces
from slicemill import types as t
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import FrameUnit, SelectItem, Window
from slicemill.columns.arrow_schema import to_arrow, with_system_columns
from slicemill.columns.rows import timed_rows, to_table
from slicemill.operators.row_step import RowStep
from slicemill.operators.temporal.coalesce import Coalescing, CoalescingState
from slicemill.operators.temporal.spec import Coalesce
from slicemill.operators.temporal.step import CoalescingByRows, CoalescingByTime
from slicemill.types import BOOLEAN, PERIOD, Column, Schema, Timed
from slicemill_oracle.translate import coalesce_rows
from support.stored import stored

POOLS = {
    "k": (t.DOUBLE, [0.0, -0.0, 1.5, NAN, None]),
    "g": (t.VARCHAR, ["a", "b"]),
    "v": (t.DOUBLE, [0.0, -0.0, NAN, 2.0, None]),
    "s": (t.VARCHAR, ["x", "y", None]),
    "q": (t.BOOLEAN, [True, True, True, False, None]),
}
SCHEMA = Schema(tuple(Column(name, type_) for name, (type_, _) in POOLS.items()))
KEYS = [(), ("k",), ("g",), ("k", "g"), ("g", "s")]
ATTRIBUTES = [("v",), ("s",), ("s", "v"), ("g", "s")]


def column(name: str) -> ColumnRef:
    return ColumnRef(name, POOLS[name][0])


def operator(random: Random) -> Coalesce:
    frame = random.choice([FrameUnit.RANGE, FrameUnit.RANGE, FrameUnit.ROWS])
    window = Window(frame, random.choice([None, 1, 2, 3, 6, 12]), random.choice([1, 2, 3, 5]))
    keys = tuple(SelectItem(name, column(name)) for name in random.choice(KEYS))
    where = random.choice([None, column("q")])
    tells_open = window.frame is FrameUnit.RANGE and random.random() < 0.5
    changes = window.frame is FrameUnit.RANGE and random.random() < 0.3
    return Coalesce(random.choice(ATTRIBUTES), keys, window, where, tells_open=tells_open, changes=changes)


def output(made: Coalesce) -> Schema:
    heads = [item.name for item in made.partition_by if item.name not in made.attributes]
    flag = [Column("OPEN", BOOLEAN)] if made.tells_open else []
    columns = (Column(n, POOLS[n][0]) for n in (*heads, *made.attributes))
    return Schema((*columns, Column("VALID", PERIOD), *flag))


def kernel(made: Coalesce, state: CoalescingState) -> Coalescing:
    kind = CoalescingByRows if made.window.frame is FrameUnit.ROWS else CoalescingByTime
    return kind(made, SCHEMA, output(made).names, state)


def tuples(random: Random, rows: int) -> list[Timed]:
    ts, out = random.choice([0, -5, 1000]), []
    for _ in range(rows):
        ts += random.choice([0, 0, 1, 1, 2, 5, 5, 40])
        out.append(Timed(ts, tuple(random.choice(pool) for _, pool in POOLS.values())))
    return out


def table(rows: list[Timed], first: int = 0) -> pa.Table:
    numbers = range(first, first + len(rows))
    return to_table(rows, SCHEMA, numbers, numbers)


def rows_of(result: pa.Table | None, made: Coalesce) -> list[tuple[int, str]]:
    if result is None:
        return []
    schema = output(made)
    cast = result.cast(with_system_columns(to_arrow(schema)))
    return [(timed.ts, repr(timed.row)) for timed in timed_rows(cast, schema)]


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, 40), st.booleans())
@example(1, 30, True)
@example(64, 30, False)
# Windows without a beginning, of time and of tuples: two tuples of one time on both sides of a border.
@example(238, 24, False)
@example(525, 24, True)
def test_runs_are_those_of_the_reference(seed: int, rows: int, restarts: bool) -> None:
    random = Random(seed)
    made = operator(random)
    parts = pieces(random, tuples(random, rows)) if rows else [([], 2**63 - 1)]
    reference = RowStep(coalesce_rows(made, SCHEMA, output(made)), [SCHEMA], output(made))
    step = kernel(made, CoalescingState())
    wanted: list[tuple[int, str]] = []
    found: list[tuple[int, str]] = []
    first = 0
    for part, known in parts:
        # The last tuple tells the time.
        complete = max([known, *(timed.ts for timed in part[-1:])])
        expected, until = reference.run([table(part)], [complete])
        wanted += rows_of(expected, made)
        result, told = step.run(table(part, first), complete)
        # It does not wait for a slide that will find its windows empty.
        assert told >= until and step.due() in (None, reference.due())
        if restarts:
            step = kernel(made, stored(step.state))
            again = coalesce_rows(made, SCHEMA, output(made))
            reference = RowStep(again, [SCHEMA], output(made), known=stored(reference.state))
        if result is not None:
            indices = list(zip(result["_ts"].to_pylist(), result["_seq"].to_pylist(), strict=True))
            assert indices == sorted(indices)
        found += rows_of(result, made)
        first += len(part)
        assert found == wanted


def test_a_window_without_a_beginning_keeps_the_first_tuple_of_each_run() -> None:
    made = Coalesce(("s",), (), Window(FrameUnit.RANGE, None, 10))
    state = CoalescingState()
    step = kernel(made, state)
    stream = [Timed(ts, (None, "a", 0.0, "x" if ts < 60 else "y", True)) for ts in range(100)]
    for start in range(0, 100, 7):
        step.run(table(stream[start : start + 7]), stream[start].ts)
    step.run(table([]), 110)
    assert sum(len(piece.table) for piece in state.pieces) <= 4


def test_partitions_that_are_gone_are_forgotten() -> None:
    made = Coalesce(("s",), (SelectItem("k", column("k")),), Window(FrameUnit.RANGE, 2, 1))
    state = CoalescingState()
    step = kernel(made, state)
    for start in range(0, 4000, 100):
        step.run(
            table([Timed(ts, (ts + 0.5, "a", 0.0, "x", True)) for ts in range(start, start + 100)]), start
        )
    assert len(state.keys) < 1300
    result, _ = step.run(table([]), 2**63 - 1)
    assert result is not None and result.column("k").to_pylist()[-1] == 3999.5


def test_runs_at_scale_against_numpy() -> None:
    """One partition, tuples that alternate every three: a window of 30 shows ten runs and part of others."""
    made = Coalesce(("s",), (), Window(FrameUnit.RANGE, 30, 3))
    stream = [Timed(ts, (None, "a", 0.0, "xy"[ts // 3 % 2], True)) for ts in range(3000)]
    result, _ = kernel(made, CoalescingState()).run(table(stream), 3000)
    assert result is not None and result.num_rows == sum(min(end, 30) // 3 for end in range(3, 3001, 3))
