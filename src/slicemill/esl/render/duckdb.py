"""DuckDB's words for ESL's calls and casts where they differ from Spark's.

DuckDB is the oracle of the tests, so a function is given only where it means the same; for the rest there is
an error, never a near miss.
"""

from __future__ import annotations

from collections.abc import Callable

from slicemill.errors import SlicemillError
from slicemill.esl.render.words import type_name
from slicemill.esl.types.expression import Call, Cast, Expr
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.signatures import SCALARS

# Same name, same meaning.
_SAME_NAMES = """
    abs acos ascii asin atan atan2 cbrt chr coalesce concat_ws contains cos cosh day dayofmonth dayofyear
    degrees exp greatest hour ifnull last_day least length levenshtein lower ltrim make_date md5 minute month
    nullif pow power quarter radians repeat reverse round rtrim sha1 sin sinh split_part sqrt tan tanh
    translate trim upper weekofyear year
"""
_SAME = frozenset(_SAME_NAMES.split())

# Another spelling; {0} is the first argument. A name with a number is the form with that many arguments.
_TEMPLATES = {
    "^": "xor({0}, {1})",
    "concat": "({all:||})",
    "add_months": "CAST({0} + to_months(CAST({1} AS INTEGER)) AS DATE)",
    "bit_count": "bit_count(CAST({0} AS BIGINT))",
    "ceil": "CAST(ceil({0}) AS {type})",
    "ceiling": "CAST(ceil({0}) AS {type})",
    "char_length": "length({0})",
    "date_add": "(CAST({0} AS DATE) + CAST({1} AS INTEGER))",
    "date_diff": "CAST(CAST({0} AS DATE) - CAST({1} AS DATE) AS INTEGER)",
    "date_sub": "(CAST({0} AS DATE) - CAST({1} AS INTEGER))",
    "date_trunc": "CAST(date_trunc({0}, {1}) AS TIMESTAMP)",
    "datediff": "CAST(CAST({0} AS DATE) - CAST({1} AS DATE) AS INTEGER)",
    "dayofweek": "(dayofweek({0}) + 1)",
    "endswith": "ends_with({0}, {1})",
    "floor": "CAST(floor({0}) AS {type})",
    "if": "CASE WHEN {0} THEN {1} ELSE {2} END",
    "instr": "CAST(instr({0}, {1}) AS INTEGER)",
    "isnotnull": "({0} IS NOT NULL)",
    "isnan": "coalesce(isnan({0}), FALSE)",
    "left": "left({0}, greatest({1}, 0))",
    "locate": "CAST(instr({1}, {0}) AS INTEGER)",
    "ln": "CASE WHEN {0} > 0 THEN ln({0}) END",
    "log": "CASE WHEN {0} > 0 THEN ln({0}) END",
    "log 2": "CASE WHEN {0} > 0 AND {1} > 0 THEN log({0}, {1}) END",
    "log10": "CASE WHEN {0} > 0 THEN log10({0}) END",
    "log2": "CASE WHEN {0} > 0 THEN log2({0}) END",
    "lpad": "lpad({0}, {1}, ' ')",
    "lpad 3": "CASE WHEN {2} = '' THEN left({0}, greatest({1}, 0)) ELSE lpad({0}, {1}, {2}) END",
    "nvl": "coalesce({0}, {1})",
    "nvl2": "CASE WHEN {0} IS NOT NULL THEN {1} ELSE {2} END",
    "pmod": "CASE WHEN {0} % {1} < 0 THEN ({0} % {1} + {1}) % {1} ELSE {0} % {1} END",
    "regexp_extract": "regexp_extract({0}, {1}, 1)",
    "regexp_extract 3": "regexp_extract({0}, {1}, {2})",
    "regexp_like": "regexp_matches({0}, {1})",
    "replace": "replace({0}, {1}, '')",
    "replace 3": "replace({0}, {1}, {2})",
    "right": "right({0}, greatest({1}, 0))",
    "rlike": "regexp_matches({0}, {1})",
    "rpad": "rpad({0}, {1}, ' ')",
    "rpad 3": "CASE WHEN {2} = '' THEN left({0}, greatest({1}, 0)) ELSE rpad({0}, {1}, {2}) END",
    "second": "CAST(second({0}) AS INTEGER)",
    "shiftright": "({0} >> {1})",
    "sign": "CAST(sign({0}) AS DOUBLE)",
    "startswith": "starts_with({0}, {1})",
    "substr": "substr({0}, CASE WHEN {1} = 0 THEN 1 ELSE {1} END)",
    "substr 3": "substr({0}, CASE WHEN {1} = 0 THEN 1 ELSE {1} END, {2})",
    "substring": "substr({0}, CASE WHEN {1} = 0 THEN 1 ELSE {1} END)",
    "substring 3": "substr({0}, CASE WHEN {1} = 0 THEN 1 ELSE {1} END, {2})",
    "timestamp_micros": "make_timestamp({0})",
    "timestamp_millis": "make_timestamp({0} * 1000)",
    "timestamp_seconds": "make_timestamp(CAST({0} * 1000000 AS BIGINT))",
    "to_date": "CAST({0} AS DATE)",
    "to_timestamp": "CAST({0} AS TIMESTAMP)",
    "trunc": "CAST(date_trunc({1}, {0}) AS DATE)",
    "unix_micros": "epoch_us({0})",
    "unix_millis": "epoch_ms({0})",
    "unix_seconds": "CAST(floor(epoch_us({0}) / 1000000) AS BIGINT)",
    "weekday": "(isodow({0}) - 1)",
    "whole_units": "(epoch_us({0}) // epoch_us({1}))",
}
_INTEGERS = (Kind.INT, Kind.BIGINT)
_FRACTIONS = (Kind.DOUBLE, Kind.DECIMAL)
_NUMBERS = (*_INTEGERS, *_FRACTIONS)
_TIMES = (Kind.TIMESTAMP, Kind.DATE)


def call(node: Call, inner: Callable[[Expr], str]) -> str | None:
    """DuckDB's own text of a call, fit to stand anywhere; None where it is written as in Spark."""
    name = node.function
    arithmetic = _arithmetic(node, inner) if name in ("+", "-", "*", "/", "div") else None
    if arithmetic is not None:
        return arithmetic
    count = len(node.arguments)
    template = _TEMPLATES.get(f"{name} {count}") or _TEMPLATES.get(name)
    if template is None and (name not in SCALARS or name == "isnull"):
        return None
    if not (_means_the_same(node) if template is None else count <= _places(template)):
        raise SlicemillError(
            f"DuckDB has no function that means the same as {SCALARS[name]}: run this query on Spark"
        )
    if template is None:
        return None
    texts = [inner(argument) for argument in node.arguments]
    if "{all:||}" in template:
        return f"({' || '.join(texts)})"
    type_ = str(node.type) if "{type}" in template else ""
    return template.format(*texts, type=type_)


def _means_the_same(node: Call) -> bool:
    # Spark rounds the decimal digits of a double, DuckDB its binary ones: 1.005 to two places shows it.
    binary_rounding = node.function == "round" and len(node.arguments) > 1 and node.type.kind is Kind.DOUBLE
    return node.function in _SAME and not binary_rounding


def _places(template: str) -> int:
    """How many arguments a template takes."""
    return 99 if "{all" in template else sum(f"{{{i}}}" in template for i in range(3))


def _arithmetic(node: Call, inner: Callable[[Expr], str]) -> str | None:
    name, kinds = node.function, [argument.type.kind for argument in node.arguments]
    left, right = (inner(argument) for argument in node.arguments)
    if name == "div":
        whole = all(kind in _INTEGERS for kind in kinds)
        quotient = f"{left} // {right}" if whole else f"trunc({left} / {right})"
        return f"CAST({quotient} AS BIGINT)"
    if name == "/" and node.type.kind is Kind.DECIMAL:
        return f"CAST({left} / {right} AS {node.type})"
    if name == "-" and all(kind in _TIMES for kind in kinds):
        return f"(CAST({left} AS TIMESTAMP) - CAST({right} AS TIMESTAMP))"
    if node.type.kind is Kind.DATE and Kind.MONTHS in kinds:
        return f"CAST({left} {name} {right} AS DATE)"
    return None


def cast(node: Cast, operand: str) -> str:
    """A cast; numbers lose their fraction and times are seconds, as in Spark."""
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
