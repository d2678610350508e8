"""Window calls, whole tables at a time, give what the reference gives tuple by tuple (M31-M37)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.over.streams import (
    PARTITIONS,
    SCHEMA,
    call,
    column,
    pieces,
    reference,
    shown,
    table,
    tuples,
    window,
)
from slicemill import types as t
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.queries import FrameUnit, Window, WindowCall
from slicemill.functions.values import ExpressionError
from slicemill.operators.window.over import WindowCalls
from slicemill.time import END
from slicemill.types import Column, Timed
from support.stored import stored


def by_reference(calls: list[WindowCall], rows: list[Timed]) -> list[str]:
    return shown(reference(calls).run([table(rows)], [END])[0], calls)


def by_kernels(random: Random, calls: list[WindowCall], rows: list[Timed]) -> list[str]:
    """In runs with random borders; the state is stored in between now and then."""
    windows, out, complete = WindowCalls(calls, SCHEMA), [], -END
    for part, until in pieces(random, rows):
        made, promised = windows.run(table(part), until)
        times = made.column("_ts").to_pylist()
        assert all(ts >= complete for ts in times) and promised <= until
        complete = promised
        out += shown(made, calls)
        due = windows.due()
        assert due is None or due > until
        if random.random() < 0.3:
            windows = WindowCalls(calls, SCHEMA, stored(windows.state))
    return out


@pytest.mark.parametrize("name", BUILTINS)
@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_every_builtin_with_every_strategy_equals_the_reference(name: str, seed: int) -> None:
    random = Random(seed)
    calls = [call(random, name, window(random), random.choice(PARTITIONS), 0)]
    rows = tuples(random, random.choice([0, 1, 5, 30]))
    assert by_kernels(random, calls, rows) == by_reference(calls, rows)


@pytest.mark.parametrize("name", BUILTINS)
@settings(max_examples=6)
@given(st.integers(0, 2**32))
def test_states_of_the_first_version_go_on(name: str, seed: int) -> None:
    """It kept the rows of all partitions in one table, and sums as objects."""
    random = Random(seed)
    endless, counted = Window(FrameUnit.ROWS, None), Window(FrameUnit.ROWS, random.choice([0, 1, 3]))
    calls = [call(random, name, random.choice([endless, counted]), random.choice(PARTITIONS), 0)]
    rows = tuples(random, 24)
    before, after = WindowCalls(calls, SCHEMA), WindowCalls(calls, SCHEMA)
    for placed in before._groups:
        placed.group._has_figure = placed.group._by_partition = False
    out = shown(before.run(table(rows[:14]), rows[13].ts)[0], calls)
    after.state = stored(before.state)
    for part, until in ((rows[14:18], rows[17].ts), (rows[18:], END)):
        out += shown(after.run(table(part), until)[0], calls)
    assert out == by_reference(calls, rows)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_the_reference_goes_on_from_what_was_stored_as_if_nothing_had_been(seed: int) -> None:
    random = Random(seed)
    names = random.choices(list(BUILTINS), k=random.choice([1, 2]))
    calls = [
        call(random, name, window(random), random.choice(PARTITIONS), number)
        for number, name in enumerate(names)
    ]
    through, stopped = reference(calls), reference(calls)
    for part, until in pieces(random, tuples(random, 30)):
        expected, promised = through.run([table(part)], [until])
        found, again = stopped.run([table(part)], [until])
        assert shown(found, calls) == shown(expected, calls)
        assert (again, stopped.due()) == (promised, through.due())
        stopped = reference(calls, stored(stopped.state))


@settings(max_examples=50)
@given(st.integers(0, 2**32))
def test_calls_together_equal_the_reference(seed: int) -> None:
    random = Random(seed)
    windows = [window(random) for _ in range(2)]
    calls = [
        call(random, random.choice(list(BUILTINS)), random.choice(windows), random.choice(PARTITIONS), number)
        for number in range(random.choice([2, 3, 4]))
    ]
    rows = tuples(random, random.choice([1, 5, 25]))
    assert by_kernels(random, calls, rows) == by_reference(calls, rows)


@pytest.mark.parametrize("name", ["var_pop", "stddev", "sum", "avg"])
def test_what_a_sum_cancels_out_is_still_in_the_sum_of_squares(name: str) -> None:
    values = [1e300, -1e300, 1.0, 0.1, float("nan"), 5e-324]
    made = WindowCall(
        name, (column("wild"),), False, (), Window(FrameUnit.ROWS, None), (Column("x", t.DOUBLE),)
    )
    rows = [Timed(n, (*[None] * 5, value, *[None] * 4)) for n, value in enumerate(values)]
    windows = WindowCalls([made], SCHEMA)
    out = [line for row in rows for line in shown(windows.run(table([row]), row.ts)[0], [made])]
    assert out == by_reference([made], rows)


def test_a_sum_that_does_not_fit_is_the_references_error() -> None:
    made = WindowCall("sum", (column("b"),), False, (), Window(FrameUnit.ROWS, 1), (Column("x", t.BIGINT),))
    rows = [Timed(n, (*[None] * 3, 2**62, *[None] * 6)) for n in range(2)]
    with pytest.raises(ExpressionError, match="out of the range of 64 bits"):
        by_reference([made], rows)
    with pytest.raises(ExpressionError, match="out of the range of 64 bits"):
        WindowCalls([made], SCHEMA).run(table(rows), END)


def test_partitions_without_rows_are_forgotten() -> None:
    made = WindowCall(
        "count", (), False, (column("b"),), Window(FrameUnit.RANGE, 2), (Column("x", t.BIGINT),)
    )
    rows = [Timed(n, (*[None] * 3, n // 3 % 7, *[None] * 6)) for n in range(60)]
    windows = WindowCalls([made], SCHEMA)
    windows.state.partitions[0].crowded = 2
    out = [line for row in rows for line in shown(windows.run(table([row]), row.ts)[0], [made])]
    assert out == by_reference([made], rows)
    assert len(windows.state.partitions[0].keys) <= 4


def test_state_is_written_once_and_in_few_pieces() -> None:
    made = WindowCall("count", (), False, (), Window(FrameUnit.RANGE, 400), (Column("x", t.BIGINT),))
    windows, written = WindowCalls([made], SCHEMA), {}
    for n in range(1000):
        windows.run(table([Timed(n, (None,) * 10)]), n)
        for piece in windows.state.groups[0].slices:
            written.setdefault(id(piece), (piece, piece.table.num_rows))
    pieces_now = windows.state.groups[0].slices
    assert len(pieces_now) < 15 and sum(piece.table.num_rows for piece in pieces_now) < 900
    assert sum(rows for _, rows in written.values()) < 12_000
