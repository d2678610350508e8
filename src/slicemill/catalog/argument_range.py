"""Ranges of valid function arguments, which the binder checks for constant arguments.

A range is declared with a parameter of a function:

integer{1..12}   integer{0..}   integer{not 0}   integer{0|224|256}   string{year|month}   integer{any}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from slicemill.errors import did_you_mean, one_of


@dataclass(frozen=True, slots=True)
class ArgumentRange:
    """Range of valid values of a function argument.

    `words` describes the range in error messages. `takes` returns True for a valid value. `hint` suggests a
    replacement for an invalid value.
    """

    words: str
    takes: Callable[[Any], bool]
    hint: Callable[[Any], str] = lambda _value: ""


ANY = ArgumentRange("any value", lambda _value: True)


def parse_range(
    parameter: str, named: Mapping[str, ArgumentRange | None] | None = None
) -> ArgumentRange | None:
    """Return the range in a parameter declaration, or None.

    >>> parse_range("number{0..1}").takes(1.5), parse_range("integer{not 0}").words, parse_range("number")
    (False, 'an integer other than 0', None)
    """
    type_, brace, rest = parameter.partition("{")
    if not brace:
        return None
    text = rest.removesuffix("}")
    if text in (known := {"any": ANY, **(named or {})}):
        return known[text]
    kind = "an integer" if type_ in ("int", "integer", "places") else f"a {type_}"
    if "|" in text:
        choices = text.split("|")
        return ArgumentRange(
            one_of(choices),
            lambda value: str(value).lower() in choices,
            lambda value: did_you_mean(str(value).lower(), choices) or f"one that is: {choices[-1]}",
        )
    if text == "not 0":
        return ArgumentRange(
            f"{kind} other than 0", lambda value: value != 0, lambda _value: "the first that is one is 1"
        )
    return _between(kind, *text.split(".."))


def _between(kind: str, least: str, greatest: str) -> ArgumentRange:
    low, high = (Fraction(text) if text else None for text in (least, greatest))
    words = f"between {least} and {greatest}"
    if not least or not greatest:
        words = f"of at least {least}" if least else f"of at most {greatest}"

    def takes(value: Any) -> bool:
        # NaN is outside every range, because all comparisons with NaN are false.
        return (low is None or value >= low) and (high is None or value <= high)

    def hint(value: Any) -> str:
        return f"the nearest is {least if low is not None and not value > low else greatest}"

    return ArgumentRange(f"{kind} {words}", takes, hint)
