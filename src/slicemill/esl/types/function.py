"""Functions of users, as declared: an expression over the parameters, a function in Python, or a query."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.esl.types.schema import Schema, Type


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """One CREATE FUNCTION: the `body` is an expression in ESL, or `external` names `module:function`.

    One that returns rows, with the columns of a schema, has a query as its body.

    A call stands for its body with the arguments in place of the parameters, so nothing of a function is left
    once a statement is bound.
    """

    name: str
    parameters: Schema
    returns: Type | Schema
    body: str | None = None
    external: str | None = None

    def __str__(self) -> str:
        return f"{self.name}{self.parameters}"
