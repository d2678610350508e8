"""Rendered ESL parses and binds back to its expression."""

from __future__ import annotations

import datetime
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill import types as t
from slicemill.binder import bind
from slicemill.catalog.expressions import Call, Case, Cast, ColumnRef, Expr, Literal, transform
from slicemill.catalog.queries import SelectQuery
from slicemill.functions.render import render
from slicemill.functions.signatures import arithmetic_type
from slicemill.types import Kind, Type

COLUMNS = (
    "i int, b bigint, p double, s varchar, d decimal(10, 2), t timestamp, day date, ok boolean, "
    '"order" int, "unit price" double, "say ""hi""" varchar'
)
CATALOG = bind(f"CREATE STREAM S({COLUMNS}) ORDER BY t").catalog


def bound(text: str) -> Expr:
    """Return the typed form of an expression over the stream S."""
    query = bind(f"SELECT {text} AS x FROM S", CATALOG).catalog.queries["query_1"].query
    assert isinstance(query, SelectQuery)
    return query.items[0].expr


names = st.sampled_from


def column(name: str) -> ColumnRef:
    found = CATALOG.relations["s"].schema.find(name)
    assert found is not None
    return ColumnRef(found.name, found.type)


def columns(*wanted: str) -> st.SearchStrategy[Expr]:
    return st.sampled_from([column(name) for name in wanted])


def literal(type_: Type) -> st.SearchStrategy[Expr]:
    values: dict[Kind, st.SearchStrategy[object]] = {
        Kind.INT: st.integers(-(2**31) + 1, 2**31 - 1),
        Kind.BIGINT: st.integers(2**31, 2**63 - 1),
        Kind.DOUBLE: st.floats(allow_nan=False),
        Kind.VARCHAR: st.text(max_size=5) | st.sampled_from(["it's", "\\", "{#", "--", "/*", '"', "%"]),
        Kind.BOOLEAN: st.booleans(),
        Kind.TIMESTAMP: st.datetimes().map(
            lambda moment: (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
        ),
        Kind.DATE: st.dates().map(lambda day: (day - datetime.date(1970, 1, 1)).days),
        Kind.INTERVAL: st.integers(-(2**62), 2**62) | st.integers(-5, 5).map(lambda n: n * 60_000_000),
    }
    return values[type_.kind].map(lambda value: Literal(value, type_))  # type: ignore[arg-type]


def negative(operand: Expr) -> Expr:
    if isinstance(operand, Literal):
        assert isinstance(operand.value, (int, float))
        return Literal(-operand.value, operand.type)
    return Call("negative", (operand,), operand.type)


def arithmetic(operator: str, left: Expr, right: Expr) -> Expr:
    type_ = arithmetic_type(operator, left.type, right.type)
    return left if type_ is None else Call(operator, (left, right), type_)


def boolean(function: str, *arguments: Expr) -> Expr:
    return Call(function, arguments, t.BOOLEAN)


def case(condition: Expr, value: Expr, default: Expr | None) -> Expr:
    return Case(((condition, value),), Literal(None, t.NULL) if default is None else default, value.type)


integers: st.SearchStrategy[Expr] = st.deferred(
    lambda: st.one_of(
        columns("i", "b", "order"),
        literal(t.INT),
        literal(t.BIGINT),
        st.builds(arithmetic, names(["+", "-", "*", "%", "div", "&", "|", "^"]), integers, integers),
        integers.map(negative),
        integers.map(lambda operand: Call("~", (operand,), operand.type)),
        numbers.map(lambda operand: Cast(operand, t.INT)),
        intervals.map(lambda o: Call("whole_units", (o, Literal(60_000_000, t.INTERVAL)), t.BIGINT)),
        times.map(lambda operand: Call("year", (operand,), t.INT)),
    )
)
numbers: st.SearchStrategy[Expr] = st.deferred(
    lambda: st.one_of(
        integers,
        columns("p", "unit price"),
        literal(t.DOUBLE),
        st.builds(arithmetic, names(["+", "-", "*", "/"]), numbers, numbers),
        numbers.map(negative),
        st.builds(lambda o, safe: Cast(o, t.decimal(12, 3), safe), numbers, st.booleans()).map(
            lambda operand: Cast(operand, t.DOUBLE)
        ),
    )
)
texts: st.SearchStrategy[Expr] = st.deferred(
    lambda: st.one_of(
        columns("s", 'say "hi"'),
        literal(t.VARCHAR),
        st.lists(texts, min_size=2, max_size=3).map(lambda parts: Call("concat", tuple(parts), t.VARCHAR)),
        st.builds(lambda text, n: Call("left", (text, n), t.VARCHAR), texts, integers),
        numbers.map(lambda operand: Cast(operand, Type(Kind.VARCHAR, length=7), safe=True)),
    )
)
# The binder checks constant patterns, so constants have none of the characters of patterns.
patterns = texts.filter(
    lambda expr: not (isinstance(expr, Literal) and set(str(expr.value)) & set(r"\!?*+([{"))
)
times: st.SearchStrategy[Expr] = st.deferred(
    lambda: st.one_of(
        columns("t"), literal(t.TIMESTAMP), st.builds(arithmetic, names(["+", "-"]), times, intervals)
    )
)
intervals: st.SearchStrategy[Expr] = st.deferred(
    lambda: st.one_of(
        literal(t.INTERVAL),
        st.builds(arithmetic, st.just("-"), times, times),
        st.builds(arithmetic, names(["+", "-"]), intervals, intervals),
        st.builds(arithmetic, st.just("*"), intervals, integers),
        intervals.map(negative),
    )
)
decimals = st.one_of(
    columns("d"),
    st.builds(arithmetic, names(["+", "-", "*", "/", "%"]), columns("d"), integers),
)
exact = st.decimals(0, 1000, places=2).map(
    lambda value: Literal(Decimal(repr(float(value))), _decimal_of(Decimal(repr(float(value)))))
)


def _decimal_of(value: Decimal) -> Type:
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    return t.decimal(max(len(digits), scale), scale)


comparisons = names(["=", "<>", "<", "<=", ">", ">=", "<=>"])
periods = st.builds(lambda begin, end: Call("period", (begin, end), t.PERIOD), times, times)
conditions: st.SearchStrategy[Expr] = st.deferred(
    lambda: st.one_of(
        columns("ok"),
        literal(t.BOOLEAN),
        st.builds(boolean, comparisons, numbers, numbers),
        st.builds(boolean, comparisons, texts, texts),
        st.builds(boolean, comparisons, times, times),
        st.builds(boolean, comparisons, intervals, intervals),
        st.builds(boolean, comparisons, conditions, conditions),
        st.builds(boolean, comparisons, decimals, exact),
        st.builds(boolean, comparisons, columns("day"), literal(t.DATE)),
        st.builds(boolean, names(["and", "or"]), conditions, conditions),
        st.builds(lambda x, low, high: boolean("and", boolean(">=", x, low), boolean("<=", x, high)),
                  numbers, numbers, numbers),
        conditions.map(lambda operand: boolean("not", operand)),
        st.one_of(numbers, texts, conditions).map(lambda operand: boolean("isnull", operand)),
        st.lists(numbers, min_size=2, max_size=4).map(lambda parts: boolean("in", *parts)),
        st.builds(boolean, names(["like", "ilike", "rlike", "contains"]), texts, patterns),
        st.builds(boolean, names(["like", "ilike"]), texts, patterns, st.just(Literal("!", t.VARCHAR))),
        st.builds(boolean, names(["before", "met by", "contains", "equals"]), periods, periods),
        st.builds(case, conditions, conditions, st.none() | conditions),
    )
)  # fmt: skip


def flat(expr: Expr) -> Expr:
    """Return AND and OR with flattened operands, because the grammar may nest them in any way."""

    def change(part: Expr) -> Expr | None:
        if not (isinstance(part, Call) and part.function in ("and", "or")):
            return None
        arguments: list[Expr] = []
        for argument in part.arguments:
            same = isinstance(argument, Call) and argument.function == part.function
            arguments += argument.arguments if same and isinstance(argument, Call) else [argument]
        return Call(part.function, tuple(arguments), t.BOOLEAN)

    return transform(expr, change)


@settings(max_examples=250)
@given(st.one_of(conditions, numbers, texts, times, intervals))
def test_rendered_esl_binds_to_the_same_expression(expr: Expr) -> None:
    assert flat(bound(render(expr))) == flat(expr)
