"""Python source text of scalar calls, for the code generated for aggregates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from slicemill.types import Kind, Type


@dataclass(frozen=True, slots=True)
class Snippet:
    """Python source text that computes a call's result.

    `bad` is the source text of a condition that is true if the call fails. With `before`, the condition is
    evaluated before the value. Otherwise it is evaluated after the value, and RESULT stands for the value.
    `twice` is set if the source text repeats an argument.
    """

    value: str
    bad: str | None = None
    before: bool = False
    twice: bool = False


# Function from the source text of arguments to the source text of a call. Generated code imports `ops`.
SnippetMaker: TypeAlias = Callable[..., Snippet]
# Function of the argument types, the result type, and a flag for machine code, in which strings are integer
# codes and integers wrap around.
# The function returns None for types that have no source text.
SourceMaker: TypeAlias = Callable[[tuple[Type, ...], Type, bool], SnippetMaker | None]


def kinds_of(types: tuple[Type, ...]) -> set[Kind]:
    return {type_.kind for type_ in types}


def source_of_double(text: str, bad: str | None = None) -> SourceMaker:
    """Return Python source text of a DOUBLE function that may fail."""

    def make(types: tuple[Type, ...], _result: Type, _machine: bool) -> SnippetMaker | None:
        if types[0].kind is not Kind.DOUBLE:
            return None
        return lambda a: Snippet(text.format(a), bad and bad.format(a), before=True, twice=True)

    return make
