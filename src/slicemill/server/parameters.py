"""Parameters of statements: substitute values for $1, $2, …"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from slicemill.errors import SlicemillError
from slicemill.esl import SourceText
from slicemill.esl.syntax.pieces import StatementPiece
from slicemill.esl.syntax.tokens import tokenize

_PARAMETER = re.compile(r"\$(\d+)")


class UntypedText(str):
    """Parameter that the client sent as text without a type."""

    __slots__ = ()


_INTEGER = re.compile(r"[+-]?\d{1,38}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def guessed(value: object) -> object:
    """Convert untyped parameters of an ad hoc query: a number if the text looks like one, without loss of
    digits.

    >>> guessed(UntypedText("12")), guessed(UntypedText("0.5")), guessed(UntypedText("infinity"))
    (12, 0.5, 'infinity')
    >>> guessed(UntypedText("12345678901234567890.5"))
    Decimal('12345678901234567890.5')
    >>> guessed([UntypedText("1"), None]), guessed([UntypedText("1"), UntypedText("a")])
    ([1, None], ['1', 'a'])
    """
    if isinstance(value, list):
        found = [guessed(element) for element in value]
        kinds = {type(element) for element in found if element is not None}
        # All elements of a list must have the same type.
        return found if len(kinds) < 2 else [None if one is None else str(one) for one in value]
    if not isinstance(value, UntypedText):
        return value
    if _INTEGER.fullmatch(value):
        return int(value)
    if _NUMBER.fullmatch(value):
        number, exact = float(value), Decimal(value)
        return exact if Decimal(repr(number)) != exact and len(exact.as_tuple().digits) <= 38 else number
    return str(value)


def with_values(piece: StatementPiece, values: Sequence[object]) -> SourceText:
    """Return the statement with its parameters replaced by literals. Quotes in texts are doubled."""
    text = piece.text
    parts: list[str] = []
    end = 0
    for token in tokenize(text):
        if found := _PARAMETER.fullmatch(text[token.start : token.end + 1]):
            number = int(found[1])
            if not 1 <= number <= len(values):
                raise SlicemillError(f"${number} has no value; {len(values)} are given")
            parts += [text[end : token.start], constant(values[number - 1])]
            end = token.end + 1
    return SourceText("".join([*parts, text[end:]]), piece.source.name)


def constant(value: object) -> str:
    """Return a value as an ESL literal.

    >>> constant("it's"), constant(None), constant(True), constant(-3), constant(b"a")
    ("'it''s'", 'NULL', 'TRUE', '-3', "unhex('61')")
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, Decimal)):
        return f"{value:f}" if isinstance(value, Decimal) else str(value)
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return f"TIMESTAMP '{moment.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, timedelta):
        us = value // timedelta(microseconds=1)
        return f"{'-' if us < 0 else ''}INTERVAL {abs(us)} MICROSECONDS"
    if isinstance(value, (bytes, memoryview)):
        return f"unhex('{value.hex()}')"
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(constant, value))}]"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    raise SlicemillError(f"a value of type {type(value).__name__} cannot be given as a parameter here")
