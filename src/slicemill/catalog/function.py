"""User-defined functions: SQL expressions, Python functions or queries."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.types import Schema, Type


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """CREATE FUNCTION: an expression (`body`) or a Python function `module:function` (`external`).

    If `returns` is a schema, the function returns rows and its body is a query. The binder inlines the body
    at each call, so bound statements do not refer to functions.
    """

    name: str
    parameters: Schema
    returns: Type | Schema
    body: str | None = None
    external: str | None = None

    def __str__(self) -> str:
        return f"{self.name}{self.parameters}"
