"""The join of a table of tuples with a stored table equals the reference's nested loop (M40)."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalar.random_rows import CENTS, as_table, pool
from slicemill import types as t
from slicemill.catalog.expressions import Call, Cast, ColumnRef, Expr, Literal
from slicemill.functions.rows import compile_condition
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import from_arrow, to_values
from slicemill.operators import lookup
from slicemill.operators.lookup import TableLookup, keys_of
from slicemill.types import Column, Schema, Timed
from slicemill_oracle.operators.table_join import TableJoin

TYPES = {"i": t.INT, "b": t.BIGINT, "d": t.DOUBLE, "m": CENTS, "s": t.VARCHAR, "a": t.DATE, "t": t.TIMESTAMP}
STREAM = Schema(tuple(Column(f"L.{name}", type_) for name, type_ in TYPES.items()))
TABLE = Schema(tuple(Column(f"R.{name}", type_) for name, type_ in TYPES.items()))


def column(name: str) -> ColumnRef:
    return ColumnRef(name, TYPES[name[2:]])


def compare(function: str, left: Expr, right: Expr) -> Expr:
    return Call(function, (left, right), t.BOOLEAN)


def equal(left: str, right: str) -> Expr:
    return compare("=", column(left), column(right))


def both(left: Expr, right: Expr) -> Expr:
    return Call("and", (left, right), t.BOOLEAN)


CONDITIONS: dict[str, Expr | None] = {
    "one key": equal("L.i", "R.i"),
    "a key the other way round": equal("R.s", "L.s"),
    "keys of different types": both(equal("L.i", "R.b"), equal("L.a", "R.t")),
    "numbers of three kinds": both(equal("L.m", "R.i"), equal("L.b", "R.m")),
    "NaN and two zeros": equal("L.d", "R.d"),
    "a key and a rest": both(compare("<", column("L.b"), column("R.b")), equal("L.i", "R.i")),
    "a key that is computed": compare("=", Call("lower", (column("L.s"),), t.VARCHAR), column("R.s")),
    "three keys": both(equal("L.i", "R.i"), both(equal("L.s", "R.s"), equal("L.a", "R.a"))),
    "no key": compare(">", column("L.i"), column("R.i")),
    "a condition of one side": compare("=", column("L.i"), Literal(1, t.INT)),
    "a condition without columns": Literal(True, t.BOOLEAN),
    "none": None,
}


def random_rows(random: Random, rows: int, schema: Schema) -> list[tuple[Any, ...]]:
    return [
        tuple(
            None if random.random() < 0.2 else random.choice([*pool(c.type)[:4], pool(c.type)[-3]])
            for c in schema
        )
        for _ in range(rows)
    ]


def with_times(rows: list[tuple[Any, ...]]) -> pa.Table:
    table = as_table(rows, STREAM)
    times = pa.array(range(len(rows)), pa.int64())
    return table.add_column(0, "_ts", times).append_column("_arr", times)


def values(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [table["_ts"].to_pylist(), table["_arr"].to_pylist()]
    for field in (*STREAM, *TABLE):
        columns.append(to_values(from_arrow(table[field.name].combine_chunks(), field.type), table.num_rows))
    return [tuple(map(repr, row)) for row in zip(*columns, strict=True)]


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(CONDITIONS)), st.booleans(), st.integers(0, 2**32), st.sampled_from([1, 7, 4096])
)
def test_a_join_equals_the_reference(name: str, left: bool, seed: int, pairs: int) -> None:
    random = Random(seed)
    condition = CONDITIONS[name]
    tuples = random_rows(random, random.choice((0, 1, 12)), STREAM)
    stored = random_rows(random, random.choice((0, 1, 9)), TABLE)
    holds = (
        (lambda _row: True)
        if condition is None
        else compile_condition(condition, Schema((*STREAM.columns, *TABLE.columns)))
    )
    reference = TableJoin(lambda: stored, len(TABLE), holds, left)
    wanted = [
        (out.ts, out.ts, *out.row)
        for ts, row in enumerate(tuples)
        for out in reference.process(0, Timed(ts, row))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "PAIRS_PER_BLOCK", pairs)
        found = TableLookup(STREAM, TABLE, condition, as_table(stored, TABLE), left).join(with_times(tuples))
    assert found.column_names[:2] == ["_ts", "_arr"]
    assert values(found) == [tuple(map(repr, row)) for row in wanted]


def test_equalities_of_both_sides_are_keys_and_the_others_remain() -> None:
    rest = compare("<", column("L.b"), column("R.b"))
    keys = keys_of(both(both(equal("R.i", "L.i"), rest), equal("L.i", "R.b")), STREAM, TABLE)
    assert keys.stream == (column("L.i"), Cast(column("L.i"), t.BIGINT))
    assert keys.table == (column("R.i"), column("R.b"))
    assert keys.rest == rest


def test_an_error_of_the_condition_is_raised() -> None:
    ratio = Call("/", (column("L.i"), column("R.i")), t.DOUBLE)
    condition = compare(">", ratio, Literal(0.0, t.DOUBLE))
    row = tuple(0 if type_ is t.INT else None for type_ in TYPES.values())
    join = TableLookup(STREAM, TABLE, condition, as_table([row], TABLE))
    with pytest.raises(ExpressionError, match="division by zero"):
        join.join(with_times([row]))
