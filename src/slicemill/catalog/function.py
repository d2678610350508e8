"""User-defined functions: ESL expression, Python function, or query."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.types import Schema, Type


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """One CREATE FUNCTION: ESL (`body`) or `module:function` (`external`).

    If `returns` is a schema, the function returns rows and its body is a query. The binder inlines the body
    at each call, so a bound statement does not refer to functions.
    """

    name: str
    parameters: Schema
    returns: Type | Schema
    body: str | None = None
    external: str | None = None

    def __str__(self) -> str:
        return f"{self.name}{self.parameters}"
