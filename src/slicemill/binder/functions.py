"""Binder of CREATE FUNCTION: name, parameters, and the type of the body.

This module also imports the Python objects that a script names as `module:name`.
"""

from __future__ import annotations

import importlib

from sqlglot import exp

from slicemill import types as t
from slicemill.binder.calls import FunctionEnvironment, inline_body
from slicemill.binder.context import Context, ErrorCollector
from slicemill.binder.environments import WINDOW_BOUNDS
from slicemill.binder.expressions import bind
from slicemill.binder.table_functions import bind_body
from slicemill.binder.types import bind_columns, bind_type
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.expressions import Argument
from slicemill.catalog.function import FunctionDefinition
from slicemill.functions.signatures import SCALARS, UNREPEATABLE
from slicemill.sql import nodes
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of
from slicemill.types import Schema, Type

# Names of functions that became built-in functions in a later version.
# User-defined functions of older versions may have these names.
_FREE = ("mean", "skewness", "kurtosis")
_TAKEN = frozenset((*SCALARS, *UNREPEATABLE, *BUILTINS, *WINDOW_BOUNDS, "valid", "oldest")).difference(_FREE)


def bind_function(node: nodes.CreateFunction, context: Context) -> FunctionDefinition:
    _refuse_known(node.this, context)
    problems = ErrorCollector()
    parameters = Schema(())
    returns: Type | Schema = t.NULL
    with problems.collect():
        parameters = bind_columns(child(node, "arguments"))
    with problems.collect():
        declared = child(node, "returns")
        returns = bind_columns(declared) if isinstance(declared, list) else bind_type(declared)
    problems.raise_any()
    if isinstance(returns, Schema):
        # The body is bound here, so that errors have their positions in this text.
        bind_body(child(node, "body"), parameters, returns, context)
        return FunctionDefinition(node.this.name, parameters, returns, body=to_esl(child(node, "body")))
    if child(node, "external") is not None:
        return _external(node, parameters, returns, context.imports)
    body = child(node, "body")
    definition = FunctionDefinition(node.this.name, parameters, returns, body=to_esl(body))
    values = {column.name.lower(): Argument(column.name, column.type) for column in parameters}
    # The body is bound here, so that errors have their positions in this text.
    bind(body, FunctionEnvironment(context, definition, values))
    try:
        inline_body(definition, values, context)
    except StatementError as mistake:
        raise StatementError(mistake.diagnostic.message, span_of(body), mistake.diagnostic.hint) from None
    return definition


def refuse_function(identifier: exp.Identifier, context: Context) -> None:
    """Raise StatementError if a function already has this name."""
    known = context.catalog.functions.get(identifier.name.lower())
    if known is not None:
        raise StatementError(
            f"there is a function {known.name} already",
            span_of(identifier),
            f"choose another name, or DROP FUNCTION {known.name} first",
        )


def _refuse_known(identifier: exp.Identifier, context: Context) -> None:
    name = identifier.name.lower()
    refuse_function(identifier, context)
    if name in _TAKEN:
        kind = "an aggregate" if name in BUILTINS else "a function"
        raise StatementError(
            f"{identifier.name} is {kind} that is built in", span_of(identifier), "choose another name"
        )
    called = context.catalog.callables.get(name)
    if called is not None or any(context.catalog.declared_versions(name)):
        kind = "aggregate" if called is None else called.kind.lower()
        raise StatementError(
            f"there is a{'n' * (kind[0] == 'a')} {kind} {identifier.name} already",
            span_of(identifier),
            f"choose another name, or DROP {kind.upper()} {identifier.name} first",
        )


def _external(
    node: nodes.CreateFunction, parameters: Schema, returns: Type, imports: bool
) -> FunctionDefinition:
    literal = child(node, "external")
    module, name = split_object_name(
        literal, "a Python function is named module:function", "'mypackage.geo:cell'"
    )
    if not parameters.columns:
        raise StatementError(
            "a function in Python takes whole columns, and this one takes none",
            span_of(node.this),
            "give it a parameter",
        )
    if imports and not callable(import_object(literal, module, name)):
        raise StatementError(f"{literal.name} is no function", span_of(literal))
    return FunctionDefinition(node.this.name, parameters, returns, external=literal.name)


def split_object_name(literal: exp.Literal, rule: str, example: str) -> tuple[str, str]:
    """Split `module:name` into the module and the name."""
    module, _, name = literal.name.partition(":")
    if not module or not name:
        raise StatementError(rule, span_of(literal), f"as in {example}")
    return module, name


def import_object(literal: exp.Literal, module: str, name: str) -> object:
    """Import the Python object `module:name`, which runs the code of the module."""
    try:
        found: object = getattr(importlib.import_module(module), name)
    except Exception as problem:  # the code of a user's module may raise any exception
        raise StatementError(
            f"cannot import {literal.name}: {problem}", span_of(literal), "is its folder on PYTHONPATH?"
        ) from None
    return found
