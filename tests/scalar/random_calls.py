"""Random typed expressions by the binder's own typing rules, with every function and operator."""

from __future__ import annotations

from random import Random

from scalar.random_rows import SCHEMA, pool
from slicemill import types as t
from slicemill.catalog.expressions import Call, Case, Cast, ColumnRef, Expr, Literal
from slicemill.functions.lists import LISTS
from slicemill.functions.signatures import SCALARS, arithmetic_type, castable, fits, result_type
from slicemill.sql.grammar.expressions import INTERVAL_RELATIONS
from slicemill.time import UNITS_US
from slicemill.types import Kind, Type

ARITHMETIC = ("+", "-", "*", "/", "%", "div", "&", "|", "^")
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
RELATIONS = tuple(relation.lower() for relation in INTERVAL_RELATIONS)
OTHERS = ("and", "or", "not", "in", "like", "ilike", "rlike", "negative", "~", "whole_units", "cast", "case")
# Only aggregates produce lists, and no random column has them; `tests/corpus/lists` covers lists.
NAMES = tuple(
    dict.fromkeys(
        (*(name for name in SCALARS if name not in LISTS), *ARITHMETIC, *COMPARISONS, *RELATIONS, *OTHERS)
    )
)

_TARGETS = (
    *(
        t.INT,
        t.BIGINT,
        t.DOUBLE,
        t.decimal(12, 3),
        t.decimal(38, 10),
        t.VARCHAR,
        Type(Kind.VARCHAR, length=2),
    ),
    *(t.BOOLEAN, t.TIMESTAMP, t.DATE),
)
_NUMBERS = {Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE}
_PATTERNS = (
    "%",
    "",
    "a%",
    "%c",
    "%b%",
    "a_c",
    "%a_b%",
    "ab",
    "\\%",
    "a\\_%",
    "%\n%",
    "Ü%",
    "[a-c]+",
    "(b)|c",
)
_UNITS = ("YEAR", "quarter", "MM", "WEEK", "DAY", "HOUR", "second", "century", "yyyy-MM-dd", "MICROSECOND")
_LENGTHENING = ("repeat", "lpad", "rpad")  # functions that could produce strings of a gigabyte


class Maker:
    """Draw expressions from a random number generator, so that a seed determines the expression."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def any(self, depth: int, *wanted: Kind) -> Expr:
        """Return an expression with a type of one of the kinds; without kinds, of any type."""
        if depth > 0:
            for _ in range(12):
                expr = self.call(self.random.choice(NAMES), depth - 1)
                if expr is not None and (not wanted or expr.type.kind in wanted):
                    return expr
        return self.leaf(*wanted)

    def leaf(self, *wanted: Kind) -> Expr:
        columns = [c for c in SCHEMA if not wanted or c.type.kind in wanted]
        if not columns:  # Only functions return values of this kind.
            type_ = Type(self.random.choice(wanted))
            return Literal(self.random.choice(pool(type_)), type_)
        column = self.random.choice(columns)
        chance = self.random.random()
        if chance < 0.7 or column.type.kind is Kind.PERIOD:
            return ColumnRef(column.name, column.type)
        if chance < 0.75:
            return Literal(None, t.NULL)
        return Literal(self.random.choice(pool(column.type)), column.type)

    def call(self, name: str, depth: int = 0) -> Expr | None:
        """Return a call of the function, or None if the drawn arguments do not fit together."""
        if name in SCALARS and not (name == "contains" and self.random.random() < 0.5):
            return self._scalar(name, depth)
        if name in ARITHMETIC:
            left, right = self.any(depth), self.any(depth)
            type_ = arithmetic_type(name, left.type, right.type)
            return None if type_ is None else Call(name, (left, right), type_)
        if name in COMPARISONS:
            left, right = self.any(depth), self.any(depth)
            if t.common(left.type, right.type) is None or Kind.PERIOD in (left.type.kind, right.type.kind):
                return None
            return Call(name, (left, right), t.BOOLEAN)
        if name in RELATIONS:
            return Call(name, (self.any(depth, Kind.PERIOD), self.any(depth, Kind.PERIOD)), t.BOOLEAN)
        return getattr(self, f"_{'invert' if name == '~' else name}")(depth)

    def _scalar(self, name: str, depth: int) -> Expr | None:
        signature = SCALARS[name]
        least = len(signature.parameters) - signature.optional
        count = self.random.randint(least, len(signature.parameters) + 2 * signature.repeats)
        shared = self.any(depth).type.kind
        arguments = [self._argument(signature.parameter(i), depth, shared) for i in range(count)]
        if not all(fits(signature.parameter(i), a.type) for i, a in enumerate(arguments)):
            return None
        if name == "round" and count == 2:
            arguments[1] = Literal(self.random.choice((-3, -1, 0, 1, 2, 5, 16)), t.INT)
        if name in _LENGTHENING:
            arguments[1] = Call("%", (arguments[1], Literal(40, t.INT)), arguments[1].type)
        type_ = result_type(signature, arguments)
        if type_ is None or (
            name in ("hash", "xxhash64") and Kind.PERIOD in {a.type.kind for a in arguments}
        ):
            return None
        return Call(name, tuple(arguments), type_)

    def _argument(self, parameter: str, depth: int, shared: Kind) -> Expr:
        chance = self.random.random()
        if parameter == "string":
            if chance < 0.4:
                return Literal(self.random.choice((*_PATTERNS, *_UNITS, "b", "a", "")), t.VARCHAR)
            return self.any(depth, Kind.VARCHAR)
        if parameter == "int" and chance < 0.5:
            return Literal(self.random.choice((-7, -2, -1, 0, 1, 2, 3, 5, 12, 29, 2024)), t.INT)
        kinds = {
            "number": _NUMBERS,
            "int": {Kind.INT, Kind.BIGINT},
            "boolean": {Kind.BOOLEAN},
            "time": {Kind.TIMESTAMP, Kind.DATE},
            "timestamp": {Kind.TIMESTAMP},
            "moment": {Kind.TIMESTAMP, Kind.DATE},
            "period": {Kind.PERIOD},
        }.get(parameter)
        if kinds is None:
            kinds = _NUMBERS if shared in _NUMBERS else {shared} - {Kind.NULL}
        return self.any(depth, *kinds)

    def _and(self, depth: int, name: str = "and") -> Expr:
        return Call(name, (self.any(depth, Kind.BOOLEAN), self.any(depth, Kind.BOOLEAN)), t.BOOLEAN)

    def _or(self, depth: int) -> Expr:
        return self._and(depth, "or")

    def _not(self, depth: int) -> Expr:
        return Call("not", (self.any(depth, Kind.BOOLEAN),), t.BOOLEAN)

    def _in(self, depth: int) -> Expr | None:
        value = self.any(depth)
        kinds = _NUMBERS if value.type.kind in _NUMBERS else {value.type.kind} - {Kind.NULL}
        if value.type.kind is Kind.PERIOD:
            return None
        if self.random.random() < 0.5:
            choices = [Literal(self.random.choice(pool(value.type)), value.type) for _ in range(9)]
        else:
            choices = [self.any(depth, *kinds) for _ in range(self.random.randint(1, 4))]
        if any(t.common(value.type, choice.type) is None for choice in choices):
            return None
        return Call("in", (value, *choices), t.BOOLEAN)

    def _like(self, depth: int, name: str = "like") -> Expr:
        escape = [Literal("!", t.VARCHAR)] if self.random.random() < 0.2 and name != "rlike" else []
        pattern = self._argument("string", depth, Kind.VARCHAR)
        return Call(name, (self.any(depth, Kind.VARCHAR), pattern, *escape), t.BOOLEAN)

    def _ilike(self, depth: int) -> Expr:
        return self._like(depth, "ilike")

    def _rlike(self, depth: int) -> Expr:
        return self._like(depth, "rlike")

    def _negative(self, depth: int) -> Expr:
        operand = self.any(depth, *_NUMBERS, Kind.INTERVAL, Kind.MONTHS)
        return Call("negative", (operand,), operand.type)

    def _invert(self, depth: int) -> Expr:
        operand = self.any(depth, Kind.INT, Kind.BIGINT)
        return Call("~", (operand,), operand.type)

    def _whole_units(self, depth: int) -> Expr:
        unit = Literal(self.random.choice(list(UNITS_US.values())), t.INTERVAL)
        return Call("whole_units", (self.any(depth, Kind.PERIOD, Kind.INTERVAL), unit), t.BIGINT)

    def _cast(self, depth: int) -> Expr | None:
        operand, target = self.any(depth), self.random.choice(_TARGETS)
        return Cast(operand, target, self.random.random() < 0.4) if castable(operand.type, target) else None

    def _case(self, depth: int) -> Expr | None:
        branches = [
            (self.any(depth, Kind.BOOLEAN), self.any(depth)) for _ in range(self.random.randint(1, 3))
        ]
        default = self.any(depth) if self.random.random() < 0.6 else Literal(None, t.NULL)
        type_: Type | None = default.type
        for _, value in branches:
            type_ = None if type_ is None else t.common(type_, value.type)
        return None if type_ is None else Case(tuple(branches), default, type_)
