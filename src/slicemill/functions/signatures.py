"""Signatures of Spark SQL's scalar functions: parameter and result types.

Each function has one line, under the topic whose module in `functions` implements it. The signatures are
separate from the implementations so that a script can be checked without NumPy and Arrow. Names, meanings
and types are Spark's; a test compares them with Spark. A function is listed only if its value depends on
nothing but its arguments, because a replay after a crash must produce the same rows.

Parameters: `number` is INT, BIGINT, DECIMAL or DOUBLE; `integer` is INT or BIGINT; `time` is TIMESTAMP or
DATE; `moment` is a `time` or a string; `any` and `value` are every type except a list; `plain` is every
type except a list and a PERIOD. `[x]` is optional; `x...` may be repeated. Results: a type, `same` (the
first argument's type), `common` (the common type of all arguments that are `any` or `plain`), `first`
(the first argument's type, if there is a common type), `whole` (the type of CEIL and FLOOR), `rounded` (of
ROUND), `remainder` (of MOD), or `list`, `element`, `contained` and `joined` for functions of lists.

Braces contain the allowed values of an argument (`argument_range`), or `any` for all values of its type;
every integer and pattern parameter has braces. The checker rejects a constant out of its range. A
computed value out of range gives the result of Spark: an error, which stops only that query, or NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slicemill import types as t
from slicemill.catalog.argument_range import ArgumentRange, parse_range
from slicemill.catalog.expressions import Expr, Literal
from slicemill.functions.calendar import pattern_regex, pattern_writers
from slicemill.functions.json_path import json_path
from slicemill.functions.regular_expressions import java_pattern, like_pattern
from slicemill.functions.values import ExpressionError
from slicemill.types import MAX_DECIMAL_PRECISION, Kind, Type

_LIBRARY = """
# arithmetic
abs(number) -> same
mod(number, number) -> remainder
pmod(number, number) -> remainder

# maths
acos(number) -> double
asin(number) -> double
atan(number) -> double
atan2(number, number) -> double
cbrt(number) -> double
cos(number) -> double
cosh(number) -> double
degrees(number) -> double
exp(number) -> double
ln(number) -> double
log(number, [number]) -> double
log10(number) -> double
log2(number) -> double
pow(number, number) -> double
power(number, number) -> double
radians(number) -> double
sin(number) -> double
sinh(number) -> double
sqrt(number) -> double
tan(number) -> double
tanh(number) -> double
ceil(number) -> whole
ceiling(number) -> whole
floor(number) -> whole
round(number, [places{-400..400}]) -> rounded
sign(number) -> double
bit_count(integer{any}) -> int
shiftleft(integer{any}, integer{any}) -> same
shiftright(integer{any}, integer{any}) -> same

# comparison
greatest(plain, plain, plain...) -> common
isnan(number) -> boolean
isnotnull(any) -> boolean
isnull(any) -> boolean
least(plain, plain, plain...) -> common

# logic
coalesce(any, any...) -> common
if(boolean, any, any) -> common
ifnull(any, any) -> common
nullif(any, any) -> first
nvl(any, any) -> common
nvl2(value, any, any) -> common

# strings
ascii(string) -> int
char_length(string) -> int
chr(integer{any}) -> string
concat(string, string...) -> string
concat_ws(string, string...) -> string
contains(string, string) -> boolean
endswith(string, string) -> boolean
initcap(string) -> string
instr(string, string) -> int
left(string, integer{any}) -> string
length(string) -> int
levenshtein(string, string) -> int
locate(string, string, [integer{any}]) -> int
lower(string) -> string
lpad(string, integer{..100000000}, [string]) -> string
ltrim(string) -> string
repeat(string, integer{..100000000}) -> string
replace(string, string, [string]) -> string
reverse(string) -> string
right(string, integer{any}) -> string
rpad(string, integer{..100000000}, [string]) -> string
rtrim(string) -> string
split_part(string, string, integer{not 0}) -> string
startswith(string, string) -> boolean
substr(string, integer{any}, [integer{any}]) -> string
substring(string, integer{any}, [integer{any}]) -> string
substring_index(string, string, integer{any}) -> string
translate(string, string, string) -> string
trim(string) -> string
upper(string) -> string

# patterns
regexp_extract(string, string{pattern}, [integer{0..}]) -> string
regexp_like(string, string{pattern}) -> boolean
regexp_replace(string, string{pattern}, string) -> string

# times
add_months(time, integer{any}) -> date
date_add(time, int{any}) -> date
date_diff(time, time) -> int
date_format(time, string{written date}) -> string
date_sub(time, int{any}) -> date
date_trunc(string{unit}, time) -> timestamp
datediff(time, time) -> int
day(time) -> int
dayofmonth(time) -> int
dayofweek(time) -> int
dayofyear(time) -> int
from_unixtime(integer{any}, [string{written date}]) -> string
hour(time) -> int
last_day(time) -> date
make_date(integer{any}, integer{mon}, integer{day}) -> date
make_timestamp(integer{any}, integer{mon}, integer{day}, integer{hh}, integer{min}, number{sec}) -> timestamp
minute(time) -> int
month(time) -> int
quarter(time) -> int
second(time) -> int
timestamp_micros(integer{any}) -> timestamp
timestamp_millis(integer{any}) -> timestamp
timestamp_seconds(number) -> timestamp
to_date(string, [string{read date}]) -> date
to_timestamp(string, [string{read date}]) -> timestamp
trunc(time, string{long unit}) -> date
unix_micros(timestamp) -> bigint
unix_millis(timestamp) -> bigint
unix_seconds(timestamp) -> bigint
unix_timestamp(moment, [string{read date}]) -> bigint
weekday(time) -> int
weekofyear(time) -> int
year(time) -> int

# periods
begin(period) -> timestamp
end(period) -> timestamp
period(timestamp, timestamp) -> period

# lists
array(element, element...) -> list
array_contains(list, any) -> contained
array_join(list, string{any}) -> joined
array_size(list) -> int
cardinality(list) -> int
element_at(list, integer{any}) -> element
size(list) -> int
split(string, string{pattern}, [integer{any}]) -> strings
try_element_at(list, integer{any}) -> element

# json
get_json_object(string, string{json path}) -> string

# hashing
crc32(string) -> bigint
hash(plain, plain...) -> int
md5(string) -> string
sha1(string) -> string
sha2(string, integer{0|224|256|384|512}) -> string
unhex(string) -> binary
xxhash64(plain, plain...) -> bigint
"""

# Functions whose value differs from run to run, and what to use instead.
UNREPEATABLE = dict.fromkeys(
    ("now", "current_timestamp", "current_date", "localtimestamp", "curdate", "unix_timestamp"),
    "use the stream's timestamp column, so that a replay gives the same rows; for what came lately, give the "
    "stream a window: FROM s [RANGE 1 HOUR]",
) | dict.fromkeys(
    ("rand", "random", "randn", "uuid"), "use hash(column), so that a replay gives the same rows"
)

# Functions and columns of other systems, and what to write instead.
_CLOCK = "for the clock's time, declare the stream (…, current_time timestamp) ORDER BY current_time"
_RANKED = "ranks of all rows change with each one; ask for percentile(x, 0.9) OVER (ROWS 99 PRECEDING)"
_COLUMNS_OF_JSON = (
    "write get_json_object(x, '$.a'), or declare the columns: "
    "CREATE STREAM s (a int, b varchar) SOURCE 's.json'"
)
_WINDOWED = "group by a window: GROUP BY window(ts, '15 minutes')"
ELSEWHERE = {
    "ucase": "write upper(x)",
    "lcase": "write lower(x)",
    "latest_by_offset": "write last(x)",
    "earliest_by_offset": "write first(x)",
    "topk": "keep the first rows: QUALIFY row_number() OVER (PARTITION BY k ORDER BY x DESC) <= 3",
    "current_watermark": "tuples that come late are a stream of their own: FROM s_late",
    "mz_now": "give the stream a window: FROM s [RANGE 5 MINUTES]",
    **dict.fromkeys(("count_distinct", "approx_count_distinct"), "write count(DISTINCT x), which is exact"),
    **dict.fromkeys(("percentile_approx", "approx_percentile"), "write percentile(x, 0.5), which is exact"),
    **dict.fromkeys(("percentile_cont", "percentile_disc"), "write percentile(x, 0.5)"),
    **dict.fromkeys(("json_value", "json_query", "from_json"), _COLUMNS_OF_JSON),
    **dict.fromkeys(("date_bin", "time_bucket", "time_slice"), _WINDOWED),
    **dict.fromkeys(("ntile", "percent_rank", "cume_dist"), _RANKED),
    **dict.fromkeys(("proctime", "proc_time", "processing_time"), _CLOCK),
    "rowtime": "name the stream's timestamp column",
    "windowstart": "write window_start()",
    "windowend": "write window_end()",
}

_NAMED_TYPES = {
    "boolean": t.BOOLEAN,
    "int": t.INT,
    "bigint": t.BIGINT,
    "double": t.DOUBLE,
    "string": t.VARCHAR,
    "binary": t.BINARY,
    "timestamp": t.TIMESTAMP,
    "date": t.DATE,
    "period": t.PERIOD,
    "strings": t.list_of(t.VARCHAR),
}

_FITS = {
    "number": {Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE},
    "int": {Kind.INT},
    "integer": {Kind.INT, Kind.BIGINT},
    "places": {Kind.INT, Kind.BIGINT},
    "string": {Kind.VARCHAR},
    "boolean": {Kind.BOOLEAN},
    "time": {Kind.TIMESTAMP, Kind.DATE},
    "timestamp": {Kind.TIMESTAMP},
    "moment": {Kind.TIMESTAMP, Kind.DATE, Kind.VARCHAR},
    "period": {Kind.PERIOD},
    "list": {Kind.LIST},
    "element": set(Kind) - {Kind.PERIOD, Kind.MONTHS, Kind.LIST, Kind.CHANGE},
    "any": set(Kind) - {Kind.LIST},
    "plain": set(Kind) - {Kind.PERIOD, Kind.LIST},
    "value": set(Kind) - {Kind.LIST},
}


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature of a function.

    The last parameter may repeat; the last `optional` parameters may be omitted.
    """

    name: str
    parameters: tuple[str, ...]
    ranges: tuple[ArgumentRange | None, ...]
    optional: int
    repeats: bool
    result: str

    def __str__(self) -> str:
        required = len(self.parameters) - self.optional
        words = [p if i < required else f"[{p}]" for i, p in enumerate(self.parameters)]
        return f"{self.name}({', '.join(words)}{'...' if self.repeats else ''})"

    def takes(self, count: int) -> bool:
        if self.repeats:
            return count >= len(self.parameters) - 1
        return len(self.parameters) - self.optional <= count <= len(self.parameters)

    def parameter(self, index: int) -> str:
        return self.parameters[min(index, len(self.parameters) - 1)]

    def range_of(self, index: int) -> ArgumentRange | None:
        return self.ranges[min(index, len(self.parameters) - 1)]


def _signature(line: str) -> Signature:
    head, result = line.split(" -> ")
    name, inside = head.rstrip(")").split("(")
    words = [word.strip() for word in inside.split(",")]
    optional = sum(word.startswith("[") for word in words)
    repeats = words[-1].endswith("...")
    bare = [word.removesuffix("...").strip("[]") for word in words]
    ranges = tuple(parse_range(word, _NAMED_RANGES) for word in bare)
    return Signature(name, tuple(w.partition("{")[0] for w in bare), ranges, optional, repeats, result)


def _pattern(words: str, compiled: Callable[[str], object]) -> ArgumentRange:
    """Accept constants that compile; the compiler's error message is the hint."""

    def problem(pattern: Any) -> str:
        try:
            compiled(pattern)
        except ExpressionError as error:
            return str(error)
        return ""

    return ArgumentRange(words, lambda pattern: not problem(pattern), problem)


_REGULAR = _pattern("a regular expression", java_pattern)
_LIKE = _pattern("a pattern", lambda pattern: like_pattern(pattern, "\\", False))
# Allowed values of the pattern in LIKE, ILIKE and RLIKE.
PATTERN_RANGES = {"like": _LIKE, "ilike": _LIKE, "rlike": _REGULAR}
_LONG_UNITS = "year|yyyy|yy|quarter|month|mm|mon|week"
_SHORT_UNITS = "day|dd|hour|minute|second|millisecond|microsecond"
_NAMED_RANGES = {
    "long unit": parse_range(f"string{{{_LONG_UNITS}}}"),
    "unit": parse_range(f"string{{{_LONG_UNITS}|{_SHORT_UNITS}}}"),
    "mon": parse_range("integer{1..12}"),
    "hh": parse_range("integer{0..23}"),
    "min": parse_range("integer{0..59}"),
    "sec": parse_range("number{0..60}"),
    "day": parse_range("integer{1..31}"),
    "pattern": _REGULAR,
    "written date": _pattern("a pattern such as 'yyyy-MM-dd HH:mm'", pattern_writers),
    "read date": _pattern("a pattern such as 'yyyy-MM-dd HH:mm'", pattern_regex),
    "json path": _pattern("a path such as '$.a.b[0]'", json_path),
}

SCALARS: dict[str, Signature] = {
    signature.name: signature
    for signature in (_signature(line) for line in _LIBRARY.split("\n") if "->" in line)
}


def fits(parameter: str, type_: Type) -> bool:
    return type_.kind in (Kind.NULL, Kind.ANY) or type_.kind in _FITS[parameter]


def result_type(signature: Signature, arguments: Sequence[Expr]) -> Type | None:
    """Return a call's result type.

    Return None if its arguments have no common type.
    """
    rule = signature.result
    first = arguments[0].type
    if rule in _NAMED_TYPES:
        return _NAMED_TYPES[rule]
    if rule == "same":
        return first
    if rule in ("element", "contained", "joined"):
        element = first.element or t.NULL
        if rule == "joined":
            return t.VARCHAR if element.kind in (Kind.VARCHAR, Kind.NULL) else None
        if rule == "element":
            return element
        return t.BOOLEAN if t.common(element, arguments[1].type) == element else None
    if rule in ("common", "first", "list"):
        kinds = ("any", "plain", "element")
        typed = [a.type for i, a in enumerate(arguments) if signature.parameter(i) in kinds]
        merged: Type | None = typed[0]
        for type_ in typed[1:]:
            merged = t.common(merged, type_) if merged is not None else None
        if rule == "list":
            return None if merged is None else t.list_of(merged)
        return first if rule == "first" and merged is not None else merged
    if rule == "remainder":
        return remainder_type(first, arguments[1].type)
    if first.kind is not Kind.DECIMAL:
        return (first if first.kind is not Kind.NULL else t.DOUBLE) if rule == "rounded" else t.BIGINT
    if rule == "whole" and first.scale == 0:
        return first
    return _round_type(first, arguments[1:] if rule == "rounded" else ())


def _round_type(type_: Type, places: Sequence[Expr]) -> Type:
    assert type_.precision is not None and type_.scale is not None
    whole_digits = type_.precision - type_.scale + 1
    given = places[0].value if places and isinstance(places[0], Literal) else 0
    wanted = given if isinstance(given, int) else 0
    scale = max(0, min(type_.scale, wanted))
    return t.decimal(max(whole_digits, 1 - wanted) + scale, scale)


def remainder_type(left: Type, right: Type) -> Type | None:
    if Kind.DECIMAL in (left.kind, right.kind) and Kind.DOUBLE not in (left.kind, right.kind):
        a, b = t.as_decimal(left), t.as_decimal(right)
        if a.kind is Kind.DECIMAL and b.kind is Kind.DECIMAL:
            assert a.precision is not None and a.scale is not None
            assert b.precision is not None and b.scale is not None
            scale = max(a.scale, b.scale)
            return t.decimal(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)
    return t.common(left, right)


# Result types of arithmetic operators.
#
# Numbers have the types of Spark, times and intervals those of standard SQL.
#
# `/` of integers is fractional, as in Spark and DuckDB. DIV is integer division and rejects DOUBLE.


MIN_ADJUSTED_SCALE = 6

_TIME = (Kind.TIMESTAMP, Kind.DATE)


def arithmetic_type(operator: str, left: Type, right: Type) -> Type | None:
    """Return the type of `left operator right`.

    Return None if the operands are invalid.
    """
    if Kind.ANY in (left.kind, right.kind):
        return t.ANY
    if t.is_numeric(left) and t.is_numeric(right):
        return _number_type(operator, left, right)
    if operator in ("+", "-"):
        return _time_type(operator, left, right)
    if left.kind is Kind.INTERVAL and t.is_numeric(right) and operator in ("*", "/"):
        return t.INTERVAL
    if right.kind is Kind.INTERVAL and t.is_numeric(left) and operator == "*":
        return t.INTERVAL
    return None


def _number_type(operator: str, left: Type, right: Type) -> Type | None:
    if operator == "div":
        return None if Kind.DOUBLE in (left.kind, right.kind) else t.BIGINT
    if operator in ("&", "|", "^"):
        return t.common(left, right) if t.is_integer(left) and t.is_integer(right) else None
    kinds = {left.kind, right.kind}
    if Kind.DOUBLE in kinds or (operator == "/" and (Kind.DECIMAL not in kinds or left.kind is Kind.NULL)):
        return t.DOUBLE
    if operator == "%":
        return remainder_type(left, right)
    if Kind.DECIMAL in kinds:
        # A bare NULL has the type of the other operand.
        a = right if left.kind is Kind.NULL else left
        b = left if right.kind is Kind.NULL else right
        return _decimal_type(operator, t.as_decimal(a), t.as_decimal(b))
    return t.common(left, right)


def _decimal_type(operator: str, a: Type, b: Type) -> Type:
    assert a.precision is not None and a.scale is not None
    assert b.precision is not None and b.scale is not None
    if operator in ("+", "-"):
        scale = max(a.scale, b.scale)
        return limit_precision(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)
    if operator == "*":
        return limit_precision(a.precision + b.precision + 1, a.scale + b.scale)
    scale = max(MIN_ADJUSTED_SCALE, a.scale + b.precision + 1)
    return limit_precision(a.precision - a.scale + b.scale + scale, scale)


def limit_precision(precision: int, scale: int) -> Type:
    """Limit a decimal type to 38 digits.

    Drop fractional digits first, down to six.
    """
    if precision <= MAX_DECIMAL_PRECISION:
        return t.decimal(precision, scale)
    whole = precision - scale
    return t.decimal(
        MAX_DECIMAL_PRECISION, max(MAX_DECIMAL_PRECISION - whole, min(scale, MIN_ADJUSTED_SCALE))
    )


def _time_type(operator: str, left: Type, right: Type) -> Type | None:
    if left.kind in _TIME and right.kind in _TIME:
        return t.INTERVAL if operator == "-" else None
    if left.kind is Kind.DATE and right.kind is Kind.INT:
        return t.DATE
    if left.kind in _TIME and right.kind is Kind.INTERVAL:
        return t.TIMESTAMP
    if left.kind in _TIME and right.kind is Kind.MONTHS:
        return left
    if operator == "+" and right.kind in _TIME and left.kind in (Kind.INT, Kind.INTERVAL, Kind.MONTHS):
        return _time_type("+", right, left)
    if left.kind is right.kind and left.kind in (Kind.INTERVAL, Kind.MONTHS):
        return left
    if Kind.NULL in (left.kind, right.kind):
        known = right if left.kind is Kind.NULL else left
        if known.kind in _TIME:
            return t.TIMESTAMP if operator == "+" else t.INTERVAL
        return known if known.kind in (Kind.INTERVAL, Kind.MONTHS) else None
    return None


def castable(source: Type, target: Type) -> bool:
    """Return True if CAST is allowed between the types.

    A value may still fail at run time.
    """
    if Kind.NULL in (source.kind,) or Kind.ANY in (source.kind, target.kind) or source.kind is target.kind:
        return Kind.LIST not in (source.kind, target.kind) or source == target
    if target.kind is Kind.VARCHAR:
        return source.kind not in (Kind.PERIOD, Kind.LIST)
    if source.kind is Kind.VARCHAR:
        return target.kind not in (Kind.PERIOD, Kind.MONTHS, Kind.INTERVAL)
    if source.kind in _TIME and target.kind in _TIME:
        return True
    numberlike = {Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE}
    if source.kind in numberlike and target.kind in numberlike | {Kind.BOOLEAN, Kind.TIMESTAMP}:
        return True
    return source.kind in (Kind.BOOLEAN, Kind.TIMESTAMP) and target.kind in numberlike
