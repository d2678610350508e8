"""Which tuples each member takes, and which members fail, row by row in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill import types as t
from slicemill.catalog.expressions import Call, ColumnRef, Expr, Literal
from slicemill.functions.values import ExpressionError
from slicemill.operators.window.panes import PaneInput, TupleSelection
from slicemill.types import Column, Schema

SCHEMA = Schema((Column("k", t.INT), Column("v", t.INT)))
K, V = (ColumnRef(column.name, column.type) for column in SCHEMA)
Row = tuple[int, int | None, int | None]  # time, k, v


def above(number: int) -> Expr:
    return Call(">", (V, Literal(number, t.INT)), t.BOOLEAN)


def inverse(column: Expr) -> Expr:
    """10 / column, which has no value where that is 0."""
    return Call("/", (Literal(10, t.INT), column), t.DOUBLE)


BROKEN = Call(">", (inverse(V), Literal(1, t.INT)), t.BOOLEAN)
CONDITIONS = {"all": None, "zero": above(0), "three": above(3), "again": above(3), "broken": BROKEN}


def table(rows: list[Row]) -> pa.Table:
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("_ts", "k", "v"))}
    types = {"_ts": pa.int64(), "k": pa.int32(), "v": pa.int32()}
    return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


def takes(name: str, row: Row) -> bool:
    value = row[2]
    if name == "all":
        return True
    if value is None:
        return False
    return 10 / value > 1 if name == "broken" else value > {"zero": 0, "three": 3, "again": 3}[name]


def selection(
    names: set[str], keys: tuple[Expr, ...] = (K,), held: dict[str, tuple[int, int]] | None = None
) -> TupleSelection:
    """`held` are the times in the windows of members; those of others hold all."""

    def holds(name: str) -> Any:
        first, last = (held or {}).get(name, (-100, 100))
        return lambda ts: (ts >= first) & (ts < last)

    conditions = {name: CONDITIONS[name] for name in CONDITIONS if name in names}
    return TupleSelection(PaneInput(SCHEMA, keys), conditions, {name: holds(name) for name in names})


values = st.none() | st.integers(-1, 6)
rows = st.lists(st.tuples(st.integers(0, 20), values, values), max_size=12).map(
    lambda found: sorted(found, key=lambda row: row[0])
)
names = st.sets(st.sampled_from(sorted(CONDITIONS)), min_size=1)


@settings(max_examples=60)
@given(rows, names)
@example([(0, 1, 0)], {"broken", "three"})
@example([], {"zero"})
def test_tuples_and_patterns_of_members(rows: list[Row], names: set[str]) -> None:
    chosen = selection(names)
    selected, failed = chosen.select(table(rows), names)
    broken = any(row[2] == 0 for row in rows)
    assert failed.keys() == ({"broken"} & names if broken else set())
    live = names - failed.keys()
    kept = list(zip(*(selected.table.column(name).to_pylist() for name in ("_ts", "k", "v")), strict=True))
    if "broken" not in failed:
        assert kept == [row for row in rows if any(takes(name, row) for name in live)]
    assert [key.to_pylist() for key in selected.keys] == [[row[1] for row in kept]]
    for name in live:
        assert chosen.takes(name, selected).tolist() == [takes(name, row) for row in kept]
        # None of its tuples is lost, whoever fails.
        assert [row for row in kept if takes(name, row)] == [row for row in rows if takes(name, row)]
    numbers, members = chosen.patterns(selected, live)
    found = [members[number] for number in numbers.tolist()]
    assert found == [frozenset(name for name in live if takes(name, row)) for row in kept]
    assert len(members) == len({*numbers.tolist()})


@settings(max_examples=60)
@given(rows, st.sets(st.sampled_from(["all", "zero", "three"]), min_size=1), st.integers(0, 20))
@example([(0, 0, 1)], {"all", "three"}, 0)
@example([(0, 0, 1), (5, 1, 5)], {"all", "three"}, 3)
def test_a_key_without_value_fails_members_whose_windows_hold_it(
    rows: list[Row], names: set[str], border: int
) -> None:
    """The windows of `all` hold only what comes before the border."""
    chosen = selection(names, (inverse(K),), {"all": (-100, border)})
    selected, failed = chosen.select(table(rows), names)

    def needs(name: str, row: Row) -> bool:
        return takes(name, row) and (name != "all" or row[0] < border)

    assert failed.keys() == {name for name in names if any(row[1] == 0 and needs(name, row) for row in rows)}
    kept = list(zip(*(selected.table.column(name).to_pylist() for name in ("_ts", "k", "v")), strict=True))
    for name in names - failed.keys():
        needed = [row for row in rows if needs(name, row)]
        assert [row for row in kept if needs(name, row)] == needed
    (keys,) = selected.keys
    assert keys.to_pylist() == [None if row[1] is None else 10 / row[1] for row in kept]


@settings(max_examples=60)
@given(rows, st.sets(st.sampled_from(["all", "zero", "three"]), min_size=1), st.integers(0, 20))
@example([(5, 1, 0)], {"all"}, 0)  # nobody needs the value on any tuple
@example([(5, 1, 0), (6, 1, 2)], {"all", "zero"}, 9)
def test_an_argument_without_value_fails_members_that_need_it_there(
    rows: list[Row], names: set[str], border: int
) -> None:
    chosen = selection(names, (), {"all": (-100, border)})
    selected, _ = chosen.select(table(rows), names)
    kept: list[Row] = list(
        zip(*(selected.table.column(name).to_pylist() for name in ("_ts", "k", "v")), strict=True)
    )
    users = {inverse(V): sorted(names), V: sorted(names)}
    found, failed = chosen.arguments(selected, users)

    def needs(name: str, row: Row) -> bool:
        return takes(name, row) and (name != "all" or row[0] < border)

    assert failed.keys() == {name for name in names if any(row[2] == 0 and needs(name, row) for row in kept)}
    assert found[V].to_pylist() == [row[2] for row in kept]
    quotients = found[inverse(V)].to_pylist()
    assert len(quotients) == len(kept)
    for row, quotient in zip(kept, quotients, strict=True):
        if any(needs(name, row) for name in names - failed.keys()) and row[2] is not None:
            assert quotient == 10 / row[2]
    assert all(isinstance(problem, ExpressionError) for problem in failed.values())


def test_selected_rows_keep_their_words_and_keys() -> None:
    chosen = selection({"zero", "three"})
    selected, _ = chosen.select(table([(0, 1, 1), (1, 2, 4), (2, None, 5)]), {"zero", "three"})
    part = selected.only(np.array([False, True, True]))
    assert part.table.column("k").to_pylist() == part.keys[0].to_pylist() == [2, None]
    assert chosen.takes("three", part).tolist() == [True, True]
    assert selected.only(np.ones(3, np.bool_)) is selected
