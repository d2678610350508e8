"""Source form of scalar calls, for the code generated for aggregates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from slicemill.types import Kind, Type


@dataclass(frozen=True, slots=True)
class Snippet:
    """Source of a call's result.

    `bad` is the source of a condition that is true if the call is an error. With `before`, the condition is
    evaluated before the value. Otherwise it is evaluated after the value, and RESULT stands for the value.
    `twice` is set if the source repeats an argument.
    """

    value: str
    bad: str | None = None
    before: bool = False
    twice: bool = False


# Returns the source of a call, given the source of its arguments. `ops` is the runtime of generated code.
SnippetMaker: TypeAlias = Callable[..., Snippet]
# Receives the argument types, the result type, and whether machine code is generated (there strings are
# integer codes, and integers wrap round). Returns None for types that have no source form.
SourceMaker: TypeAlias = Callable[[tuple[Type, ...], Type, bool], SnippetMaker | None]


def kinds_of(types: tuple[Type, ...]) -> set[Kind]:
    return {type_.kind for type_ in types}


def source_of_double(text: str, bad: str | None = None) -> SourceMaker:
    """Return the source form of a DOUBLE function that may fail."""

    def make(types: tuple[Type, ...], _result: Type, _machine: bool) -> SnippetMaker | None:
        if types[0].kind is not Kind.DOUBLE:
            return None
        return lambda a: Snippet(text.format(a), bad and bad.format(a), before=True, twice=True)

    return make
