"""Operators and functions as source: from the name of a call, for its types, to the text of its value.

An entry is None for types that it does not take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from slicemill.aggregate.compiler.layout import MACHINE
from slicemill.esl.types.schema import Kind, Type


@dataclass(frozen=True, slots=True)
class Made:
    """The text of a result. `bad`: when it is an error, asked `before` the value is made, or of RESULT.

    `twice`: the text repeats an argument.
    """

    value: str
    bad: str | None = None
    before: bool = False
    twice: bool = False


Make: TypeAlias = Callable[..., Made]
Operator: TypeAlias = Callable[[tuple[Type, ...], Type, str], Make | None]

_SHORT = (Kind.INT, Kind.DATE, Kind.MONTHS)
_LONG = (Kind.BIGINT, Kind.TIMESTAMP, Kind.INTERVAL)
_WHOLE = (*_SHORT, *_LONG)


def _kinds(types: tuple[Type, ...]) -> set[Kind]:
    return {type_.kind for type_ in types}


def _additive(sign: str) -> Operator:
    def operator(types: tuple[Type, ...], result: Type, form: str) -> Make | None:
        if result.kind is Kind.DOUBLE:
            return lambda a, b: Made(f"({a} {sign} {b})")
        if not _kinds(types) <= set(_WHOLE) or Kind.MONTHS in _kinds(types):
            return None
        if result.kind in _SHORT:
            return lambda a, b: Made(f"{a} {sign} {b}", "not ops.MIN_INT <= RESULT <= ops.MAX_INT")
        other = "({b} ^ RESULT)" if sign == "+" else "({a} ^ {b})"
        overflow = f"(({{a}} ^ RESULT) & {other}) < 0"
        if form != MACHINE:  # whole numbers of Python's own do not wrap round
            overflow += " or not ops.MIN_BIGINT <= RESULT <= ops.MAX_BIGINT"
        return lambda a, b: Made(f"{a} {sign} {b}", overflow.format(a=a, b=b), twice=True)

    return operator


def _multiply(types: tuple[Type, ...], result: Type, form: str) -> Make | None:
    del form
    if result.kind is Kind.DOUBLE:
        return lambda a, b: Made(f"({a} * {b})")
    if not _kinds(types) <= {Kind.INT, Kind.BIGINT}:
        return None
    if result.kind is Kind.INT:
        return lambda a, b: Made(f"{a} * {b}", "not ops.MIN_INT <= RESULT <= ops.MAX_INT")
    return lambda a, b: Made(f"{a} * {b}", f"ops.product_overflows({a}, {b})", before=True, twice=True)


def _divide(types: tuple[Type, ...], result: Type, form: str) -> Make | None:
    del types, form
    if result.kind is not Kind.DOUBLE:
        return None
    return lambda a, b: Made(f"{a} / {b}", f"{b} == 0.0", before=True, twice=True)


def _remainder(types: tuple[Type, ...], result: Type, form: str) -> Make | None:
    del form
    if result.kind is Kind.DOUBLE:
        return lambda a, b: Made(f"ops.double_remainder({a}, {b})", f"{b} == 0.0", before=True, twice=True)
    if not _kinds(types) <= {Kind.INT, Kind.BIGINT}:
        return None
    return lambda a, b: Made(f"ops.whole_remainder({a}, {b})", f"{b} == 0", before=True, twice=True)


def _whole_division(types: tuple[Type, ...], result: Type, form: str) -> Make | None:
    del result, form
    if not _kinds(types) <= {Kind.INT, Kind.BIGINT}:
        return None
    return lambda a, b: Made(
        f"ops.whole_quotient({a}, {b})",
        f"{b} == 0 or ({b} == -1 and {a} == ops.MIN_BIGINT)",
        before=True,
        twice=True,
    )


def _bits(sign: str) -> Operator:
    def operator(types: tuple[Type, ...], result: Type, form: str) -> Make | None:
        del result, form
        return (lambda a, b: Made(f"({a} {sign} {b})")) if _kinds(types) <= {Kind.INT, Kind.BIGINT} else None

    return operator


def _unary(text: str) -> Operator:
    def operator(types: tuple[Type, ...], result: Type, form: str) -> Make | None:
        del types, form
        if result.kind is Kind.DOUBLE:
            return lambda a: Made(f"({text.format(a)})")
        if result.kind in _SHORT:
            return lambda a: Made(text.format(a), "RESULT > ops.MAX_INT")
        if result.kind in _LONG:
            return lambda a: Made(text.format(a), f"{a} == ops.MIN_BIGINT", before=True, twice=True)
        return None

    return operator


def _equal(kind: Kind, a: str, b: str) -> str:
    """NaN equals itself."""
    return f"({a} == {b} or ({a} != {a} and {b} != {b}))" if kind is Kind.DOUBLE else f"({a} == {b})"


def less(kind: Kind, a: str, b: str) -> str:
    """NaN is greater than all numbers."""
    return f"({a} < {b} or ({b} != {b} and {a} == {a}))" if kind is Kind.DOUBLE else f"({a} < {b})"


def _comparison(text: Callable[[Kind, str, str], str], order: bool) -> Operator:
    """`order`: needs to know which of two comes first, which codes of texts do not tell."""

    def operator(types: tuple[Type, ...], result: Type, form: str) -> Make | None:
        del result
        kinds = _kinds(types)
        simple = kinds <= {*_WHOLE, Kind.DOUBLE, Kind.BOOLEAN}
        texts = kinds == {Kind.VARCHAR} and not (order and form == MACHINE)
        if not simple and not texts and not (kinds == {Kind.DECIMAL} and form != MACHINE):
            return None
        kind = types[0].kind
        return lambda a, b: Made(text(kind, a, b), twice=kind is Kind.DOUBLE)

    return operator


def _function(text: str, bad: str | None = None) -> Operator:
    """A function of a double that is an error for some arguments."""

    def operator(types: tuple[Type, ...], result: Type, form: str) -> Make | None:
        del result, form
        if types[0].kind is not Kind.DOUBLE:
            return None
        return lambda a: Made(text.format(a), bad and bad.format(a), before=True, twice=True)

    return operator


def _not(types: tuple[Type, ...], result: Type, form: str) -> Make | None:
    del types, result, form
    return lambda a: Made(f"(not {a})")


_NO_BIGINT = "{0} == {0} and not -9223372036854775808.0 <= {0} < 9223372036854775808.0"

_equals = _comparison(_equal, order=False)

OPERATORS: dict[str, Operator] = {
    "+": _additive("+"),
    "-": _additive("-"),
    "*": _multiply,
    "/": _divide,
    "%": _remainder,
    "div": _whole_division,
    "&": _bits("&"),
    "|": _bits("|"),
    "^": _bits("^"),
    "negative": _unary("-{}"),
    "abs": _unary("abs({})"),
    "not": _not,
    "=": _equals,
    "<>": _comparison(lambda kind, a, b: f"(not {_equal(kind, a, b)})", order=False),
    "<": _comparison(less, order=True),
    "<=": _comparison(lambda kind, a, b: f"(not {less(kind, b, a)})", order=True),
    ">": _comparison(lambda kind, a, b: less(kind, b, a), order=True),
    ">=": _comparison(lambda kind, a, b: f"(not {less(kind, a, b)})", order=True),
    "<=>": _equals,
    "in": _equals,
    "nullif": _equals,
    "least": _comparison(less, order=True),
    "greatest": _comparison(lambda kind, a, b: less(kind, b, a), order=True),
    "sqrt": _function("np.sqrt({0}) if {0} >= 0.0 else np.nan"),
    "floor": _function("0 if {0} != {0} else int(np.floor({0}))", _NO_BIGINT),
    "ceil": _function("0 if {0} != {0} else int(np.ceil({0}))", _NO_BIGINT),
    "ceiling": _function("0 if {0} != {0} else int(np.ceil({0}))", _NO_BIGINT),
}
