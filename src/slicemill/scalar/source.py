"""The source form of a call: the text of its value in code that is generated for aggregates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from slicemill.esl.types.schema import Kind, Type


@dataclass(frozen=True, slots=True)
class Snippet:
    """The text of a result. `bad`: when it is an error, asked `before` the value is made, or of RESULT.

    `twice`: the text repeats an argument.
    """

    value: str
    bad: str | None = None
    before: bool = False
    twice: bool = False


# From the texts of a call's arguments to that of its value. `ops` are the helpers of generated code.
SnippetMaker: TypeAlias = Callable[..., Snippet]
# For the types of a call, its result's type, and whether machine code is made (where strings are codes, and
# integers wrap round): None for types that have no source.
SourceMaker: TypeAlias = Callable[[tuple[Type, ...], Type, bool], SnippetMaker | None]


def kinds_of(types: tuple[Type, ...]) -> set[Kind]:
    return {type_.kind for type_ in types}


def source_of_double(text: str, bad: str | None = None) -> SourceMaker:
    """The source of a function of a double that is an error for some arguments."""

    def make(types: tuple[Type, ...], _result: Type, _machine: bool) -> SnippetMaker | None:
        if types[0].kind is not Kind.DOUBLE:
            return None
        return lambda a: Snippet(text.format(a), bad and bad.format(a), before=True, twice=True)

    return make
