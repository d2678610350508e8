"""Selection, projection and predicate masks over whole tables."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalar.random_calls import Maker
from scalar.random_rows import SCHEMA, as_table, random_rows
from slicemill import types as t
from slicemill.catalog.expressions import Call, Case, ColumnRef, Expr, Literal
from slicemill.functions import evaluate as columns
from slicemill.functions.evaluate import (
    ColumnProgram,
    compile_many,
    compile_vector,
    fallbacks,
    is_vectorizable,
)
from slicemill.functions.rows import compile_condition
from slicemill.functions.values import ExpressionError
from slicemill.operators.filter_project import compile_masks, filter_table, predicate_mask, project_table
from slicemill.types import Column, Kind, Schema

BIDS = Schema((Column("price", t.BIGINT), Column("category", t.INT), Column("channel", t.VARCHAR)))
PRICE, CATEGORY, CHANNEL = (ColumnRef(column.name, column.type) for column in BIDS)


def number(value: int) -> Literal:
    return Literal(value, t.INT)


def compare(function: str, left: Expr, right: Expr) -> Expr:
    return Call(function, (left, right), t.BOOLEAN)


def ratio() -> Expr:
    return Call("/", (PRICE, CATEGORY), t.DOUBLE)


def bids() -> pa.Table:
    return pa.table(
        {
            "_ts": pa.array([1, 2, 3, 4], pa.int64()),
            "_seq": pa.array([3, 4, 5, 6], pa.int64()),
            "_arr": pa.array([5, 6, 7, 8], pa.int64()),
            "price": pa.array([100, 2000, None, 3000], pa.int64()),
            "category": pa.array([10, 10, 10, 0], pa.int32()),
            "channel": pa.array(["web", "app", "web", None]),
        }
    )


def test_a_filter_keeps_rows_on_which_the_condition_is_true_with_their_system_columns() -> None:
    condition = compile_vector(compare(">", PRICE, number(1000)), BIDS)
    kept = filter_table(bids(), condition)
    assert kept["_ts"].to_pylist() == [2, 4]
    assert kept.column_names == bids().column_names


def test_a_projection_carries_system_columns_untouched() -> None:
    items = compile_many([Call("*", (PRICE, number(2)), t.BIGINT), CHANNEL], BIDS)
    shown = project_table(bids(), ["double", "channel"], items)
    assert shown.column_names == ["_ts", "_seq", "_arr", "double", "channel"]
    assert shown["double"].to_pylist() == [200, 4000, None, 6000]
    assert shown["_seq"].to_pylist() == [3, 4, 5, 6]


def test_a_projection_raises_the_error_of_an_item() -> None:
    with pytest.raises(ExpressionError, match="division by zero"):
        project_table(bids(), ["ratio"], compile_many([ratio()], BIDS))


def test_case_guards_its_branches() -> None:
    guarded = Case(((compare("<>", CATEGORY, number(0)), ratio()),), Literal(None, t.NULL), t.DOUBLE)
    assert compile_vector(guarded, BIDS)(bids()).to_pylist() == [10.0, 200.0, None, None]


def test_equal_sub_expressions_of_several_queries_are_evaluated_once() -> None:
    dear = compare(">", Call("*", (PRICE, number(3)), t.BIGINT), number(1000))
    cheap = compare("<", Call("*", (PRICE, number(3)), t.BIGINT), number(10))
    products = [
        step
        for step in ColumnProgram([dear, cheap, dear], BIDS).steps
        if isinstance(step.expr, Call) and step.expr.function == "*"
    ]
    assert len(products) == 1


def test_zero_and_minus_zero_are_different_constants() -> None:
    times = [Call("*", (PRICE, Literal(zero, t.DOUBLE)), t.DOUBLE) for zero in (0.0, -0.0)]
    plus, minus = compile_many(times, BIDS)(bids())
    assert np.signbit(minus[0].as_py()) and not np.signbit(plus[0].as_py())


def test_an_expression_that_fails_does_not_hurt_the_others() -> None:
    masks = compile_masks([compare(">", ratio(), number(1)), compare("=", CATEGORY, number(10))], BIDS)
    found = masks(bids())
    assert found.words.tolist() == [[2, 2, 2, 0]]
    assert list(found.errors) == [0]
    with pytest.raises(ExpressionError, match="division by zero"):
        predicate_mask(bids(), masks)


@settings(max_examples=80)
@given(st.integers(0, 2**40), st.sampled_from([1, 5, 64, 70]), st.sampled_from([3, 1000]), st.booleans())
def test_masks_tell_which_predicates_hold(seed: int, count: int, block_rows: int, chunked: bool) -> None:
    random = Random(seed)
    maker = Maker(random)
    conditions = [maker.any(1, Kind.BOOLEAN) for _ in range(count)]
    rows = random_rows(random, 10)
    table = as_table(rows)
    if chunked:
        table = pa.concat_tables([table.slice(0, 4), table.slice(4, 0), table.slice(4)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "BLOCK_ROWS", block_rows)
        masks = compile_masks(conditions, SCHEMA)(table)
    assert masks.words.shape == (-(-count // 64), len(rows))
    for index, condition in enumerate(conditions):
        bits = masks.words[index // 64] >> np.uint64(index % 64) & np.uint64(1)
        try:
            holds = compile_condition(condition, SCHEMA)
            wanted = [holds(row) for row in rows]
        except ExpressionError as error:
            assert str(masks.errors[index]) == str(error)
            wanted = [False] * len(rows)
        assert bits.tolist() == wanted


def test_what_has_no_fast_form_is_told() -> None:
    title = Call("initcap", (CHANNEL,), t.VARCHAR)
    wide = compare("=", title, Literal("Web", t.VARCHAR))
    assert fallbacks(wide, BIDS) == (title,)
    assert not is_vectorizable(wide, BIDS)
    assert is_vectorizable(compare("like", CHANNEL, Literal("w%", t.VARCHAR)), BIDS)


def test_a_record_batch_is_as_good_as_a_table() -> None:
    doubled = compile_vector(Call("+", (CATEGORY, CATEGORY), t.INT), BIDS)
    (batch,) = bids().to_batches()
    assert doubled(batch).to_pylist() == doubled(bids()).to_pylist() == [20, 20, 20, 0]


def test_an_empty_table_gives_an_empty_column_of_the_right_type() -> None:
    column = compile_vector(ratio(), BIDS)(bids().slice(0, 0))
    assert len(column) == 0
    assert column.type == pa.float64()


def test_texts_with_wide_offsets_and_dictionaries_are_read_as_texts() -> None:
    long = compare("=", CHANNEL, Literal("web", t.VARCHAR))
    for type_ in (pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        table = bids().set_column(5, "channel", bids()["channel"].cast(type_))
        assert compile_vector(long, BIDS)(table).to_pylist() == [True, False, True, None]
