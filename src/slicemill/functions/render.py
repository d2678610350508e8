"""Render typed expressions as ESL (the language of slicemill) or as SQL.

ESL is for users, SQL for Spark and DuckDB. ESL text has as few parentheses as possible, and binds to the
same expression again, except for the nesting of long ANDs and ORs. In the SQL of Spark and DuckDB each
column is one quoted name, such as `A.price`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from typing import Literal as OneOf
from typing import TypeAlias

from slicemill.catalog import expressions as ex
from slicemill.catalog.expressions import Call, Case, Cast, Expr, Literal
from slicemill.catalog.queries import RelationQuery
from slicemill.errors import SlicemillError
from slicemill.functions.signatures import SCALARS
from slicemill.sql.grammar.expressions import INTERVAL_RELATIONS
from slicemill.sql.lexer import RESERVED
from slicemill.time import UNITS_US, format_us
from slicemill.types import Kind, Type

Dialect: TypeAlias = OneOf["esl", "spark", "duckdb"]


def render(expr: Expr, dialect: Dialect = "esl") -> str:
    """Return the text of an expression in a dialect.

    Raise SlicemillError if the dialect cannot express it.

    >>> from slicemill.types import BOOLEAN, DOUBLE
    >>> cheap = Call("<", (ex.ColumnRef("A.price", DOUBLE), Literal(0.9, DOUBLE)), BOOLEAN)
    >>> render(cheap), render(cheap, "spark"), render(cheap, "duckdb")
    ('A.price < 0.9', '`A.price` < 0.9D', '"A.price" < 0.9e0')
    """
    return _render(expr, dialect)[0]


class _Precedence(IntEnum):
    """Operator precedence. Operands of a lower precedence get parentheses."""

    OR = 1
    AND = 2
    NOT = 3
    COMPARISON = 4
    BITS = 5
    SUM = 6
    PRODUCT = 7
    SIGN = 8
    ATOM = 9


_Text: TypeAlias = tuple[str, _Precedence]

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_BINARY = {
    "&": _Precedence.BITS,
    "|": _Precedence.BITS,
    "^": _Precedence.BITS,
    "+": _Precedence.SUM,
    "-": _Precedence.SUM,
    "*": _Precedence.PRODUCT,
    "/": _Precedence.PRODUCT,
    "%": _Precedence.PRODUCT,
    "div": _Precedence.PRODUCT,
}
_PATTERNS = ("like", "ilike", "rlike")
_RELATIONS = frozenset(relation.lower() for relation in INTERVAL_RELATIONS)
_UNIT_OF_US = {us: unit for unit, us in UNITS_US.items()}
# The value of an aggregate is a column named after its call, such as `avg(price) OVER (…)`.
_CALL_TEXT = re.compile(r'(\w+|"[^"]+")\(')


def _render(expr: Expr, dialect: Dialect) -> _Text:
    if isinstance(expr, ex.ColumnRef):
        if dialect == "esl" and _CALL_TEXT.match(expr.name):
            return expr.name, _Precedence.ATOM
        return column(expr.name, dialect), _Precedence.ATOM
    if isinstance(expr, Literal):
        text = literal(expr, dialect)
        return text, _Precedence.SIGN if text.startswith("-") else _Precedence.ATOM
    if isinstance(expr, Call):
        return _call(expr, dialect)
    if isinstance(expr, Cast):
        return _cast(expr, dialect), _Precedence.ATOM
    if isinstance(expr, Case):
        return _case(expr, dialect), _Precedence.ATOM
    if dialect != "esl":
        raise SlicemillError(f"{type(expr).__name__} lives inside an aggregate and has no {dialect} SQL")
    if isinstance(expr, ex.Argument):
        return column(expr.name, dialect), _Precedence.ATOM
    if isinstance(expr, ex.Oldest):
        return f"oldest().{column(expr.column, dialect)}", _Precedence.ATOM
    exists = "EXISTS " if isinstance(expr, ex.ExistsQuery) else ""
    return f"{exists}({_query(expr.query)})", _Precedence.ATOM


def _inside(expr: Expr, dialect: Dialect, weakest: _Precedence) -> str:
    """Render an operand, in parentheses if its precedence is below `weakest`."""
    text, strength = _render(expr, dialect)
    return text if strength >= weakest else f"({text})"


def _list(exprs: tuple[Expr, ...], dialect: Dialect) -> str:
    return ", ".join(render(expr, dialect) for expr in exprs)


def _call(call: Call, dialect: Dialect) -> _Text:
    name = call.function
    if name in ("and", "or"):
        return _logical(call, dialect)
    if name == "not":
        return _not(call, dialect)
    if dialect != "esl" and (call.type.kind is Kind.PERIOD or _reads_period(call)):
        raise SlicemillError(
            f"{name} works on periods, which {dialect} does not have: compare begin and end instead"
        )
    if dialect == "spark" and ":" in name:
        raise SlicemillError(f"{name} is a function in Python, and has no Spark SQL")
    if dialect == "duckdb":
        special = duckdb_call(call, lambda expr: _inside(expr, "duckdb", _Precedence.ATOM))
        if special is not None:
            return special, _Precedence.ATOM
    predicate = _predicate(call, dialect)
    if predicate is not None:
        return predicate, _Precedence.COMPARISON
    if name in _BINARY:
        return _binary(call, dialect)
    if name in ("negative", "~"):
        operand = _inside(call.arguments[0], dialect, _Precedence.SIGN)
        sign = "~" if name == "~" else "-"
        # Two minus signs in a row would begin a comment.
        return f"{sign}({operand})" if operand[0] in "-~" else f"{sign}{operand}", _Precedence.SIGN
    if name == "concat" and len(call.arguments) == 2:
        left = _inside(call.arguments[0], dialect, _Precedence.SUM)
        return f"{left} || {_inside(call.arguments[1], dialect, _Precedence.PRODUCT)}", _Precedence.SUM
    if name == "whole_units":
        return _whole_units(call, dialect)
    return f"{name}({_list(call.arguments, dialect)})", _Precedence.ATOM


def _reads_period(call: Call) -> bool:
    return any(argument.type.kind is Kind.PERIOD for argument in call.arguments)


def _logical(call: Call, dialect: Dialect) -> _Text:
    strength = _Precedence.AND if call.function == "and" else _Precedence.OR
    texts = []
    for part in _flat(call):
        between = _between(part, dialect) if isinstance(part, Call) else None
        texts.append(between or _inside(part, dialect, _Precedence(strength + 1)))
    if len(texts) == 1:
        return texts[0], _Precedence.COMPARISON
    return f" {call.function.upper()} ".join(texts), strength


def _flat(call: Call) -> list[Expr]:
    """Return all operands of nested ANDs or ORs.

    Two comparisons that are rendered as BETWEEN stay one operand.
    """
    parts: list[Expr] = []
    waiting: list[Expr] = [call]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Call) and part.function == call.function and not _is_between(part):
            waiting.extend(reversed(part.arguments))
        else:
            parts.append(part)
    return parts


def _is_between(call: Call) -> bool:
    if call.function != "and":
        return False
    low, high = call.arguments
    return (
        isinstance(low, Call)
        and isinstance(high, Call)
        and (low.function, high.function) == (">=", "<=")
        and low.arguments[0] == high.arguments[0]
    )


def _between(call: Call, dialect: Dialect, not_: str = "") -> str | None:
    if not _is_between(call):
        return None
    low, high = call.arguments
    assert isinstance(low, Call) and isinstance(high, Call)
    operands = (low.arguments[0], low.arguments[1], high.arguments[1])
    subject, least, most = (_inside(operand, dialect, _Precedence.BITS) for operand in operands)
    return f"{subject} {not_}BETWEEN {least} AND {most}"


def _not(call: Call, dialect: Dialect) -> _Text:
    operand = call.arguments[0]
    if isinstance(operand, Call):
        negated = _between(operand, dialect, "NOT ") or _predicate(operand, dialect, negated=True)
        if negated is not None:
            return negated, _Precedence.COMPARISON
    return f"NOT {_inside(operand, dialect, _Precedence.NOT)}", _Precedence.NOT


def _predicate(call: Call, dialect: Dialect, negated: bool = False) -> str | None:
    """Render comparisons, memberships and patterns; None for other calls.

    With `negated`, the result is also None if the call has no negated form.
    """
    name = call.function
    if not call.arguments:
        return None
    first, rest = call.arguments[0], call.arguments[1:]
    subject: Callable[[], str] = lambda: _inside(first, dialect, _Precedence.BITS)  # noqa: E731
    not_ = "NOT " if negated else ""
    if name == "isnull":
        return f"{subject()} IS {not_}NULL"
    if name == "<=>" and isinstance(rest[0], Literal) and isinstance(rest[0].value, bool):
        return f"{subject()} IS {not_}{str(rest[0].value).upper()}"
    if name == "<=>" and (negated or dialect == "duckdb"):
        words = "IS DISTINCT FROM" if negated else "IS NOT DISTINCT FROM"
        return f"{subject()} {words} {_inside(rest[0], dialect, _Precedence.BITS)}"
    if name == "in":
        return f"{subject()} {not_}IN ({_list(rest, dialect)})"
    if name in _PATTERNS:
        text = f"{subject()} {not_}{name.upper()} {_inside(rest[0], dialect, _Precedence.BITS)}"
        return text + _escape(name, rest[1:], dialect)
    if negated:
        return None
    if name in _COMPARISONS or (name in _RELATIONS and (name != "contains" or _reads_period(call))):
        return f"{subject()} {name.upper()} {_inside(rest[0], dialect, _Precedence.BITS)}"
    return None


def _escape(pattern: str, given: tuple[Expr, ...], dialect: Dialect) -> str:
    if given:
        return f" ESCAPE {render(given[0], dialect)}"
    # Backslash is the default escape character in Spark, but DuckDB has no default escape character.
    return r" ESCAPE '\'" if dialect == "duckdb" and pattern != "rlike" else ""


def _binary(call: Call, dialect: Dialect) -> _Text:
    name = call.function
    strength = _BINARY[name]
    first = call.arguments[0]
    # ESL evaluates & | ^ from left to right, but Spark and DuckDB differ, so mixed operators get parentheses.
    mixed = strength is _Precedence.BITS and not (isinstance(first, Call) and first.function == name)
    left = _inside(first, dialect, _Precedence.SUM if mixed else strength)
    right = _inside(call.arguments[1], dialect, _Precedence(strength + 1))
    return f"{left} {name.upper()} {right}", strength


def _whole_units(call: Call, dialect: Dialect) -> _Text:
    operand, unit = call.arguments
    assert isinstance(unit, Literal) and isinstance(unit.value, int)
    if dialect == "esl":
        return f"CAST({render(operand)} AS INTERVAL {_UNIT_OF_US[unit.value]})", _Precedence.ATOM
    left = _inside(operand, dialect, _Precedence.PRODUCT)
    return f"{left} DIV {render(unit, dialect)}", _Precedence.PRODUCT


def _cast(cast: Cast, dialect: Dialect) -> str:
    if dialect == "duckdb":
        return duckdb_cast(cast, render(cast.operand, dialect))
    type_ = type_name(cast.type, dialect)
    text = f"{'TRY_CAST' if cast.safe else 'CAST'}({render(cast.operand, dialect)} AS {type_})"
    return _shorten_text(text, cast.type) if dialect == "spark" else text


def _shorten_text(text: str, type_: Type) -> str:
    """Truncate a string to the length of its type.

    Spark's CAST(… AS VARCHAR(n)) does not enforce the length.
    """
    return text if type_.length is None else f"left({text}, {type_.length})"


def _case(case: Case, dialect: Dialect) -> str:
    words = ["CASE"]
    for condition, value in case.branches:
        words.append(f"WHEN {render(condition, dialect)} THEN {render(value, dialect)}")
    if not ex.is_null_literal(case.default):
        words.append(f"ELSE {render(case.default, dialect)}")
    return " ".join([*words, "END"])


def _query(query: RelationQuery) -> str:
    """Render a query over an aggregate's tables as ESL."""
    words = ["SELECT DISTINCT" if query.distinct else "SELECT"]
    words.append(", ".join(render(item.expr) for item in query.items))
    sources = []
    for entry in query.inputs:
        name = f"({' UNION ALL '.join(map(_query, entry.queries))})" if entry.queries else entry.relation
        if entry.arguments is not None:
            values = ", ".join(f"{parameter} = {render(value)}" for parameter, value in entry.arguments)
            name = f"TABLE{name[:-1]} WITH {values})" if values else f"TABLE{name}"
        sources.append(name if name == entry.alias else f"{name} AS {entry.alias}")
    if sources:
        words.append(f"FROM {', '.join(sources)}")
    if query.where is not None:
        words.append(f"WHERE {render(query.where)}")
    if query.group_by:
        words.append(f"GROUP BY {', '.join(render(item.expr) for item in query.group_by)}")
    if query.having is not None:
        words.append(f"HAVING {render(query.having)}")
    if query.order_by:
        keys = [f"{render(key)} DESC" if descending else render(key) for key, descending in query.order_by]
        words.append(f"ORDER BY {', '.join(keys)}")
    if query.limit is not None:
        words.append(f"LIMIT {query.limit}")
    return " ".join(words)


# Names, types and constants in the language of slicemill (ESL), in Spark SQL and in DuckDB SQL


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPARK_TYPES = {
    Kind.VARCHAR: "STRING",
    Kind.INTERVAL: "INTERVAL DAY TO SECOND",
    Kind.MONTHS: "INTERVAL YEAR TO MONTH",
}
_DUCKDB_TYPES = {Kind.VARCHAR: "VARCHAR", Kind.BINARY: "BLOB", Kind.MONTHS: "INTERVAL"}


def column(name: str, dialect: str) -> str:
    """Return a column's name, quoted for the dialect.

    ESL quotes the parts of `alias.column` if necessary; SQL has one quoted name.
    """
    if dialect == "spark":
        return f"`{name.replace('`', '``')}`"
    if dialect == "duckdb":
        return _double_quoted(name)
    return ".".join(
        part if part.isidentifier() and part.upper() not in RESERVED else _double_quoted(part)
        for part in name.split(".", 1)
    )


def _double_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def type_name(type_: Type, dialect: str) -> str:
    if dialect != "esl":
        if type_.kind in (Kind.PERIOD, Kind.ANY, Kind.NULL):
            raise SlicemillError(f"{dialect} has no type {type_}: convert the value to a plain type first")
        names = _SPARK_TYPES if dialect == "spark" else _DUCKDB_TYPES
        if type_.kind in names:
            return names[type_.kind]
    return str(type_)


def literal(constant: Literal, dialect: str) -> str:
    """Return a constant, with its type if it would be ambiguous."""
    value, type_ = constant.value, constant.type
    if value is None:
        return "NULL" if type_.kind is Kind.NULL else f"CAST(NULL AS {type_name(type_, dialect)})"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return _text(value, dialect)
    if isinstance(value, bytes):
        return f"unhex('{value.hex()}')" if dialect == "duckdb" else f"X'{value.hex()}'"
    if isinstance(value, float):
        return _double(value, dialect)
    if isinstance(value, Decimal):
        return _decimal(value, type_, dialect)
    return _whole(value, type_, dialect)


def _whole(value: int, type_: Type, dialect: str) -> str:
    if type_.kind is Kind.TIMESTAMP:
        return f"TIMESTAMP '{timestamp_text(value)}'"
    if type_.kind is Kind.DATE:
        return f"DATE '{date(1970, 1, 1) + timedelta(days=value)}'"
    if type_.kind is Kind.INTERVAL:
        return _interval(value, dialect)
    if type_.kind is Kind.MONTHS:
        return _months(value, dialect)
    small = -(2**31) < value < 2**31
    if type_.kind is Kind.BIGINT and dialect == "spark":
        return f"{value}L"
    if type_.kind is Kind.BIGINT and dialect == "duckdb" and small:
        return f"CAST({value} AS BIGINT)"
    return str(value)


def timestamp_text(us: int) -> str:
    """Format microseconds since 1970 UTC as a timestamp.

    >>> timestamp_text(1_769_860_800_000_000)
    '2026-01-31 12:00:00'
    """
    try:
        return str((_EPOCH + timedelta(microseconds=us)).replace(tzinfo=None))
    except OverflowError:
        raise SlicemillError(f"{us} microseconds since 1970 is beyond the years 1 to 9999") from None


def _text(value: str, dialect: str) -> str:
    if dialect == "spark":
        # Spark reads backslash escapes inside quotes; ESL and DuckDB do not.
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "'" + value.replace("'", "''") + "'"


def _double(value: float, dialect: str) -> str:
    if math.isinf(value) and dialect == "esl":
        return "1e999" if value > 0 else "-1e999"
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{name}' AS DOUBLE)"
    text = repr(value)
    if dialect == "spark":
        return f"{text}D"
    # DuckDB reads 0.9 as a decimal; an exponent makes the constant a double.
    return f"{text}e0" if dialect == "duckdb" and "e" not in text else text


def _decimal(value: Decimal, type_: Type, dialect: str) -> str:
    if dialect == "duckdb":
        return f"CAST('{value:f}' AS {type_})"
    return f"{value}BD" if dialect == "spark" else str(value)


def _interval(us: int, dialect: str) -> str:
    if dialect == "spark":
        sign, rest = ("-", -us) if us < 0 else ("", us)
        days, rest = divmod(rest, 86_400_000_000)
        hours, rest = divmod(rest, 3_600_000_000)
        minutes, rest = divmod(rest, 60_000_000)
        seconds, fraction = divmod(rest, 1_000_000)
        clock = f"{hours:02}:{minutes:02}:{seconds:02}.{fraction:06}"
        return f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND"
    if dialect == "duckdb":
        return f"to_microseconds({us})"
    # An unquoted sign would apply to the whole expression.
    return f"INTERVAL '{format_us(us)}'" if us < 0 else f"INTERVAL {format_us(us)}"


def _months(months: int, dialect: str) -> str:
    if dialect == "spark":
        sign, rest = ("-", -months) if months < 0 else ("", months)
        return f"INTERVAL '{sign}{rest // 12}-{rest % 12}' YEAR TO MONTH"
    if dialect == "duckdb":
        return f"to_months({months})"
    count, unit = (months // 12, "YEAR") if months % 12 == 0 else (months, "MONTH")
    text = f"{count} {unit}{'' if count == 1 else 'S'}"
    return f"INTERVAL '{text}'" if months < 0 else f"INTERVAL {text}"


# Calls and casts in DuckDB's SQL, where it differs from Spark's
#
# DuckDB is the oracle of the tests, so a function is rendered only if DuckDB has one with the same meaning;
# otherwise rendering raises an error. The table of functions (`slicemill.functions`) has the DuckDB names.


_INTEGERS = (Kind.INT, Kind.BIGINT)
_FRACTIONS = (Kind.DOUBLE, Kind.DECIMAL)
_NUMBERS = (*_INTEGERS, *_FRACTIONS)


def duckdb_call(node: Call, inner: Callable[[Expr], str]) -> str | None:
    """Render a call in DuckDB's SQL; return None if Spark's SQL is the same."""
    # Imported here: the function table imports NumPy and Arrow, which are needed only to render DuckDB SQL.
    from slicemill.functions.function import SAME
    from slicemill.functions.registry import in_duckdb

    template = in_duckdb(node)
    if template is None:
        known = SCALARS.get(node.function, node.function)
        raise SlicemillError(
            f"DuckDB has no function that means the same as {known}: run this query on Spark"
        )
    if template == SAME:
        return None
    return template.format(*(inner(argument) for argument in node.arguments), type=node.type)


def duckdb_cast(node: Cast, operand: str) -> str:
    """Render a cast in DuckDB's SQL, with Spark's semantics.

    Fractions are truncated, and times are in seconds.
    """
    source, target = node.operand.type, node.type
    if source.kind in _FRACTIONS and target.kind in _INTEGERS:
        operand = f"trunc({operand})"
    elif source.kind is Kind.TIMESTAMP and target.kind in _NUMBERS:
        seconds = f"epoch_us({operand}) / 1000000"
        operand = f"floor({seconds})" if target.kind in _INTEGERS else seconds
    elif source.kind in _NUMBERS and target.kind is Kind.TIMESTAMP:
        return f"make_timestamp(CAST({operand} * 1000000 AS BIGINT))"
    text = f"{'TRY_CAST' if node.safe else 'CAST'}({operand} AS {_target(target)})"
    return text if target.length is None else f"left({text}, {target.length})"


def _target(type_: Type) -> str:
    return type_name(type_, "duckdb")
