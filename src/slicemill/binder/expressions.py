"""Binder of scalar expressions: syntax trees become typed expressions.

A ScalarEnvironment resolves names, calls and sub-queries, whose meaning depends on the clause. All other
expressions are bound in the same way in a WHERE clause, a select list and the body of an aggregate.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Protocol, TypeGuard

from sqlglot import exp

from slicemill import types as t
from slicemill.binder.context import check_constant
from slicemill.binder.types import bind_type
from slicemill.binder.windows import months_and_us
from slicemill.catalog.expressions import Call, Case, Cast, Expr, Literal, columns_of
from slicemill.errors import did_you_mean
from slicemill.functions.signatures import (
    ELSEWHERE,
    PATTERN_RANGES,
    SCALARS,
    UNREPEATABLE,
    arithmetic_type,
    castable,
    fits,
    result_type,
)
from slicemill.sql import nodes
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of
from slicemill.time import UNITS_US
from slicemill.types import Kind, Type


class ScalarEnvironment(Protocol):
    """Resolver of names, aggregate calls and sub-queries in one clause."""

    def column(self, node: exp.Column) -> Expr: ...

    def call(self, node: exp.Anonymous) -> Expr | None:
        """Bind a non-scalar call such as an aggregate or VALID(…), or return None."""
        ...

    def field(self, node: exp.Dot) -> Expr: ...

    def over(self, node: nodes.Over) -> Expr: ...

    def query(self, node: exp.Expression, scalar: bool, member: exp.Expression | None = None) -> Expr:
        """Bind a sub-query as a value, IN or EXISTS.

        The sub-query is a value if `scalar` is set, and the right side of IN if `member` is set.
        """
        ...

    def call_names(self) -> list[str]:
        """Return the names that `call` resolves, for hints."""
        ...


def bind(node: exp.Expression, env: ScalarEnvironment) -> Expr:
    """Return the typed expression for a syntax tree, or raise StatementError."""
    binder = _BINDERS.get(type(node))
    if binder is not None:
        return binder(node, env)
    if type(node) in _ARITHMETIC:
        return _arithmetic(node, env)
    if type(node) in _COMPARISONS:
        return _comparison(node, env)
    raise StatementError(f"{type(node).__name__.upper()} is not part of ESL here", span_of(node))


def bind_condition(node: exp.Expression, env: ScalarEnvironment) -> Expr:
    """Bind an expression that must be boolean."""
    condition = bind(node, env)
    if condition.type.kind not in (Kind.BOOLEAN, Kind.NULL, Kind.ANY):
        raise StatementError(
            f"a condition is true or false, this is {condition.type}",
            span_of(node),
            "compare it with something",
        )
    return condition


# -- binding of literals ----------------------------------------------------------------------------------


def _literal(node: exp.Literal, env: ScalarEnvironment) -> Expr:
    del env
    text = node.name
    if node.is_string:
        return Literal(text, t.VARCHAR)
    if text.isdigit():
        value = int(text)
        if value < 2**31:
            return Literal(value, t.INT)
        if value < 2**63:
            return Literal(value, t.BIGINT)
        if len(text) <= t.MAX_DECIMAL_PRECISION:
            return Literal(Decimal(text), t.decimal(len(text), 0))
        raise StatementError(
            "this number has more than 38 digits", span_of(node), "write it with an exponent"
        )
    try:
        return Literal(float(text), t.DOUBLE)
    except ValueError:
        raise StatementError(f"{text} is no number", span_of(node)) from None


def _interval(node: exp.Interval, env: ScalarEnvironment) -> Expr:
    del env
    months, us = months_and_us(node.this)
    if months and us:
        raise StatementError(
            "an interval is either months or a fixed length", span_of(node), "add two intervals instead"
        )
    return Literal(months, t.MONTHS) if months else Literal(us, t.INTERVAL)


def parse_timestamp(text: str) -> int | None:
    """Parse an ISO 8601 text to microseconds since 1970 UTC, or None if it is invalid.

    >>> parse_timestamp("1970-01-01 00:00:01"), parse_timestamp("yesterday")
    (1000000, None)
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def parse_date(text: str) -> int | None:
    """Parse an ISO 8601 date to days since 1970-01-01, or None if it is invalid."""
    try:
        return (date.fromisoformat(text.strip()) - date(1970, 1, 1)).days
    except ValueError:
        return None


def _is_text_literal(expr: Expr) -> TypeGuard[Literal]:
    return isinstance(expr, Literal) and expr.type.kind is Kind.VARCHAR


def _as_time(literal: Literal, kind: Kind, node: exp.Expression) -> Literal:
    """Convert a string literal to a timestamp or date.

    The text is converted by the binder and not at run time, so that a typing error is reported at once.
    """
    text = str(literal.value)
    value = parse_date(text) if kind is Kind.DATE else parse_timestamp(text)
    if value is None:
        form = "'2026-01-31'" if kind is Kind.DATE else "'2026-01-31 12:00:00'"
        raise StatementError(f"'{text}' is not a {kind.value.lower()}", span_of(node), f"write it as {form}")
    return Literal(value, t.DATE if kind is Kind.DATE else t.TIMESTAMP)


def as_argument(expr: Expr, wanted: Type, node: exp.Expression) -> Expr:
    """Convert a string literal to the declared timestamp or date.

    Other expressions are returned unchanged.
    """
    if wanted.kind in (Kind.TIMESTAMP, Kind.DATE) and _is_text_literal(expr):
        return _as_time(expr, wanted.kind, node)
    return expr


# -- binding of operators ---------------------------------------------------------------------------------

_ARITHMETIC: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}
_COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}


def _arithmetic(node: exp.Expression, env: ScalarEnvironment) -> Expr:
    operator = _ARITHMETIC[type(node)]
    left, right = bind(node.this, env), bind(node.expression, env)
    left, right = _exact_literals(left, right)
    type_ = arithmetic_type(operator, left.type, right.type)
    if type_ is None:
        hint = ""
        if operator == "+" and Kind.VARCHAR in (left.type.kind, right.type.kind):
            hint = "concatenate strings with ||"
        elif Kind.VARCHAR in (left.type.kind, right.type.kind):
            hint = "convert the string with CAST(… AS DOUBLE)"
        raise StatementError(f"{operator} does not take {left.type} and {right.type}", span_of(node), hint)
    return Call(operator, (left, right), type_)


def _exact_literals(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Convert a floating-point literal to DECIMAL if the other operand is a DECIMAL."""
    if left.type.kind is Kind.DECIMAL:
        return left, _exact(right)
    if right.type.kind is Kind.DECIMAL:
        return _exact(left), right
    return left, right


def _exact(expr: Expr) -> Expr:
    if not (isinstance(expr, Literal) and isinstance(expr.value, float)):
        return expr
    value = Decimal(repr(expr.value))
    sign, digits, exponent = value.as_tuple()
    del sign
    scale = max(0, -int(exponent))
    return Literal(value, t.decimal(max(len(digits) + max(0, int(exponent)), scale), scale))


def comparable(
    left: Expr, right: Expr, left_node: exp.Expression, right_node: exp.Expression
) -> tuple[Expr, Expr]:
    """Convert both sides of a comparison to comparable types, or raise StatementError."""
    for time, text in ((left, right), (right, left)):
        if time.type.kind in (Kind.TIMESTAMP, Kind.DATE) and _is_text_literal(text):
            converted = _as_time(text, time.type.kind, right_node if text is right else left_node)
            return (left, converted) if text is right else (converted, right)
    left, right = _exact_literals(left, right)
    if t.common(left.type, right.type) is None:
        numeric_text = {left.type.kind, right.type.kind} >= {Kind.VARCHAR} and (
            t.is_numeric(left.type) or t.is_numeric(right.type)
        )
        hint = "convert one side with CAST" if numeric_text else ""
        raise StatementError(
            f"{left.type} and {right.type} cannot be compared",
            span_of(left_node).to(span_of(right_node)),
            hint,
        )
    return left, right


def bind_key(node: exp.Expression, env: ScalarEnvironment) -> Expr:
    """Bind an expression of GROUP BY, PARTITION BY or ORDER BY."""
    return as_key(bind(node, env), node)


def as_key(expr: Expr, node: exp.Expression) -> Expr:
    if expr.type.kind is Kind.LIST:
        hint = "go by an element, element_at(list, 1), by its size, or by a text, array_join(list, ',')"
        raise StatementError("rows are neither grouped nor ordered by lists", span_of(node), hint)
    return expr


def order_keys(expr: Expr, ordered: exp.Expression) -> list[tuple[Expr, bool]]:
    """Return the sort keys of an ORDER BY item with their descending flags.

    NULL sorts as the smallest value. For another position of NULLs, `isnull(expression)` is added as the
    first key.
    """
    falls, nulls_first = bool(child(ordered, "desc")), child(ordered, "nulls_first")
    if nulls_first is None or nulls_first is not falls:
        return [(expr, falls)]
    return [(Call("isnull", (expr,), t.BOOLEAN), falls), (expr, falls)]


def _comparison(node: exp.Expression, env: ScalarEnvironment) -> Expr:
    left, right = bind(node.this, env), bind(node.expression, env)
    left, right = comparable(left, right, node.this, node.expression)
    if Kind.LIST in (left.type.kind, right.type.kind):
        hint = "compare their elements, element_at(list, 1), or ask for one, array_contains(list, x)"
        raise StatementError("lists are not compared", span_of(node), hint)
    if Kind.PERIOD in (left.type.kind, right.type.kind):
        raise StatementError(
            "periods are compared by relations", span_of(node), "use EQUALS, BEFORE, DURING, …"
        )
    return Call(_COMPARISONS[type(node)], (left, right), t.BOOLEAN)


def _logical(name: str) -> Callable[[exp.Expression, ScalarEnvironment], Expr]:
    def binder(node: exp.Expression, env: ScalarEnvironment) -> Expr:
        left, right = bind_condition(node.this, env), bind_condition(node.expression, env)
        return Call(name, (left, right), t.BOOLEAN)

    return binder


def _not(node: exp.Not, env: ScalarEnvironment) -> Expr:
    return Call("not", (bind_condition(node.this, env),), t.BOOLEAN)


def _negative(node: exp.Neg, env: ScalarEnvironment) -> Expr:
    operand = bind(node.this, env)
    value = operand.value if isinstance(operand, Literal) else None
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return Literal(-value, operand.type)
    if not t.is_numeric(operand.type) and operand.type.kind not in (Kind.INTERVAL, Kind.MONTHS):
        raise StatementError(f"- does not take {operand.type}", span_of(node))
    return Call("negative", (operand,), operand.type)


def _bitwise_not(node: exp.BitwiseNot, env: ScalarEnvironment) -> Expr:
    operand = bind(node.this, env)
    if not t.is_integer(operand.type):
        raise StatementError(f"~ does not take {operand.type}", span_of(node))
    return Call("~", (operand,), operand.type)


def _concatenation(node: exp.DPipe, env: ScalarEnvironment) -> Expr:
    left, right = bind(node.this, env), bind(node.expression, env)
    for operand, operand_node in ((left, node.this), (right, node.expression)):
        if not fits("string", operand.type):
            raise StatementError(
                f"|| joins strings, this is {operand.type}",
                span_of(operand_node),
                "convert it with CAST(… AS VARCHAR)",
            )
    return Call("concat", (left, right), t.VARCHAR)


def _is(node: exp.Is, env: ScalarEnvironment) -> Expr:
    operand = bind(node.this, env)
    if isinstance(node.expression, exp.Null):
        return Call("isnull", (operand,), t.BOOLEAN)
    if operand.type.kind not in (Kind.BOOLEAN, Kind.NULL, Kind.ANY):
        raise StatementError(f"IS TRUE asks for a condition, this is {operand.type}", span_of(node.this))
    return Call("<=>", (operand, Literal(bool(node.expression.this), t.BOOLEAN)), t.BOOLEAN)


def _in(node: exp.In, env: ScalarEnvironment) -> Expr:
    if child(node, "query") is not None:
        return env.query(child(node, "query").this, scalar=False, member=node.this)
    operand = bind(node.this, env)
    choices = []
    for choice_node in node.expressions:
        choice = bind(choice_node, env)
        _, choice = comparable(operand, choice, node.this, choice_node)
        choices.append(choice)
    return Call("in", (operand, *choices), t.BOOLEAN)


def _between(node: exp.Between, env: ScalarEnvironment) -> Expr:
    operand = bind(node.this, env)
    low_node, high_node = child(node, "low"), child(node, "high")
    left, low = comparable(operand, bind(low_node, env), node.this, low_node)
    right, high = comparable(operand, bind(high_node, env), node.this, high_node)
    return Call("and", (Call(">=", (left, low), t.BOOLEAN), Call("<=", (right, high), t.BOOLEAN)), t.BOOLEAN)


def _pattern(name: str) -> Callable[[exp.Expression, ScalarEnvironment], Expr]:
    def binder(node: exp.Expression, env: ScalarEnvironment) -> Expr:
        operands = []
        for part in (node.this, node.expression):
            operand = bind(part, env)
            if not fits("string", operand.type):
                raise StatementError(f"{name.upper()} matches strings, this is {operand.type}", span_of(part))
            operands.append(operand)
        if not isinstance(node.parent, exp.Escape):
            check_constant(name.upper(), PATTERN_RANGES[name], operands[1], node.expression)
        return Call(name, tuple(operands), t.BOOLEAN)

    return binder


def _escape(node: exp.Escape, env: ScalarEnvironment) -> Expr:
    pattern = bind(node.this, env)
    escape = bind(node.expression, env)
    assert isinstance(pattern, Call), "the grammar puts ESCAPE behind LIKE only"
    if not isinstance(escape, Literal) or len(str(escape.value)) != 1:
        raise StatementError("ESCAPE takes one character", span_of(node.expression))
    return Call(pattern.function, (*pattern.arguments, escape), t.BOOLEAN)


# -- binding of calls, CAST and CASE ----------------------------------------------------------------------


def _call(node: exp.Anonymous, env: ScalarEnvironment) -> Expr:
    special = env.call(node)
    if special is not None:
        return special
    name = node.name.lower()
    signature = SCALARS.get(name)
    if name in UNREPEATABLE and (signature is None or not node.expressions):
        raise StatementError(
            f"{node.name}() returns a different value in each run", span_of(node), UNREPEATABLE[name]
        )
    if signature is None:
        hint = ELSEWHERE.get(name) or did_you_mean(name, [*SCALARS, *env.call_names()])
        raise StatementError(f"there is no function {node.name}", span_of(node), hint)
    if child(node, "distinct") or any(isinstance(a, exp.Star) for a in node.expressions):
        raise StatementError(f"{name} is no aggregate", span_of(node), f"call it as {signature}")
    if not signature.takes(len(node.expressions)):
        raise StatementError(
            f"{name} does not take {len(node.expressions)} arguments",
            span_of(node),
            f"call it as {signature}",
        )
    arguments = []
    for index, argument_node in enumerate(node.expressions):
        argument = bind(argument_node, env)
        wanted = signature.parameter(index)
        if wanted in ("time", "timestamp") and _is_text_literal(argument):
            argument = _as_time(argument, Kind.TIMESTAMP, argument_node)
        if not fits(wanted, argument.type):
            raise StatementError(
                f"{name} wants {wanted} here, this is {argument.type}",
                span_of(argument_node),
                f"call it as {signature}",
            )
        check_constant(name, signature.range_of(index), argument, argument_node)
        if wanted == "places" and columns_of(argument):
            raise StatementError(
                f"{name} wants a constant number of places",
                span_of(argument_node),
                "write the number; a CASE can choose between several calls",
            )
        arguments.append(argument)
    type_ = result_type(signature, arguments)
    if type_ is None:
        types = ", ".join(str(a.type) for a in arguments)
        raise StatementError(f"{name} cannot mix {types}", span_of(node), "convert them with CAST")
    return Call(name, tuple(arguments), type_)


def _cast(node: exp.Cast, env: ScalarEnvironment) -> Expr:
    operand = bind(node.this, env)
    target_node = child(node, "to")
    if target_node.name.startswith("INTERVAL "):
        return _duration_in(operand, target_node.name.removeprefix("INTERVAL "), node)
    target = bind_type(target_node)
    to_time = target.kind in (Kind.TIMESTAMP, Kind.DATE) and not isinstance(node, exp.TryCast)
    if to_time and _is_text_literal(operand):
        return _as_time(operand, target.kind, node.this)
    if not castable(operand.type, target):
        raise StatementError(f"{operand.type} cannot become {target}", span_of(node))
    return Cast(operand, target, safe=isinstance(node, exp.TryCast))


def _duration_in(operand: Expr, unit: str, node: exp.Expression) -> Expr:
    """Bind CAST(VALID(S) AS INTERVAL MINUTE), the number of whole units in a period (L7)."""
    if operand.type.kind not in (Kind.PERIOD, Kind.INTERVAL, Kind.ANY):
        raise StatementError(
            f"{operand.type} has no length in {unit}S", span_of(node), "cast a VALID(…) or an interval"
        )
    if unit not in UNITS_US:
        raise StatementError(
            f"a {unit.lower()} has no fixed length", span_of(node), "use DAY or a shorter unit"
        )
    return Call("whole_units", (operand, Literal(UNITS_US[unit], t.INTERVAL)), t.BIGINT)


def _case(node: exp.Case, env: ScalarEnvironment) -> Expr:
    operand = bind(node.this, env) if node.this is not None else None
    branches: list[tuple[Expr, Expr]] = []
    type_: Type = t.NULL
    default_node = child(node, "default")
    for branch in child(node, "ifs"):
        if operand is None:
            condition = bind_condition(branch.this, env)
        else:
            left, right = comparable(operand, bind(branch.this, env), node.this, branch.this)
            condition = Call("=", (left, right), t.BOOLEAN)
        value_node = child(branch, "true")
        value = bind(value_node, env)
        type_ = _common_branch_type(type_, value.type, value_node)
        branches.append((condition, value))
    default: Expr = Literal(None, t.NULL)
    if default_node is not None:
        default = bind(default_node, env)
        type_ = _common_branch_type(type_, default.type, default_node)
    return Case(tuple(branches), default, type_)


def _common_branch_type(so_far: Type, next_: Type, node: exp.Expression) -> Type:
    merged = t.common(so_far, next_)
    if merged is None:
        raise StatementError(
            f"one branch gives {so_far}, this one {next_}", span_of(node), "convert one with CAST"
        )
    return merged


_EXTRACTABLE = {
    "YEAR": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "WEEK": "weekofyear",
    "DAY": "day",
    "DOW": "dayofweek",
    "DOY": "dayofyear",
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
}


def _extract(node: exp.Extract, env: ScalarEnvironment) -> Expr:
    field = node.this.name.upper()
    if field not in _EXTRACTABLE:
        hint = did_you_mean(field, _EXTRACTABLE) or f"the fields are {', '.join(_EXTRACTABLE)}"
        raise StatementError(f"there is no field {field} in a timestamp", span_of(node), hint)
    operand = bind(node.expression, env)
    if not fits("time", operand.type):
        raise StatementError(f"EXTRACT wants a time, this is {operand.type}", span_of(node.expression))
    return Call(_EXTRACTABLE[field], (operand,), t.INT)


def _relation(node: nodes.IntervalRelation, env: ScalarEnvironment) -> Expr:
    operands = []
    for part in (node.this, node.expression):
        operand = bind(part, env)
        if not fits("period", operand.type):
            raise StatementError(
                f"{child(node, 'relation')} compares periods, this is {operand.type}",
                span_of(part),
                "use VALID(alias) or PERIOD(begin, end)",
            )
        operands.append(operand)
    return Call(str(child(node, "relation")).lower(), tuple(operands), t.BOOLEAN)


def _star(node: exp.Expression, env: ScalarEnvironment) -> Expr:
    del env
    raise StatementError("* stands for all columns only in a select list or in count(*)", span_of(node))


_BINDERS: dict[type[exp.Expression], Callable[..., Expr]] = {
    exp.Literal: _literal,
    exp.Null: lambda _node, _env: Literal(None, t.NULL),
    exp.Boolean: lambda node, _env: Literal(bool(node.this), t.BOOLEAN),
    exp.Interval: _interval,
    exp.Paren: lambda node, env: bind(node.this, env),
    exp.Column: lambda node, env: env.column(node),
    exp.Dot: lambda node, env: env.field(node),
    exp.And: _logical("and"),
    exp.Or: _logical("or"),
    exp.Not: _not,
    exp.Neg: _negative,
    exp.BitwiseNot: _bitwise_not,
    exp.DPipe: _concatenation,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _pattern("like"),
    exp.ILike: _pattern("ilike"),
    exp.RegexpLike: _pattern("rlike"),
    exp.Escape: _escape,
    exp.Anonymous: _call,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Case: _case,
    exp.Extract: _extract,
    exp.Exists: lambda node, env: env.query(node.this, scalar=False),
    exp.Subquery: lambda node, env: env.query(node.this, scalar=True),
    exp.Star: _star,
    nodes.Over: lambda node, env: env.over(node),
    nodes.IntervalRelation: _relation,
}
