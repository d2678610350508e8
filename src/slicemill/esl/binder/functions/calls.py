"""Bind calls of user-defined scalar functions by inlining their bodies.

The body is bound anew with the arguments of each call. So a function may be called wherever an expression may
stand, and arguments that must be constant are checked at each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from slicemill.errors import counted, did_you_mean
from slicemill.esl.binder.calls import is_aggregate
from slicemill.esl.binder.context import Context
from slicemill.esl.binder.problems import Unknowable
from slicemill.esl.binder.scalar import ScalarEnvironment, as_argument, bind
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.grammar import expressions
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.syntax.tokens import tokenize
from slicemill.esl.types.expression import Call, Cast, Expr, children
from slicemill.esl.types.function import FunctionDefinition
from slicemill.esl.types.schema import Schema, Type, assignable
from slicemill.scalar.operator_types import castable
from slicemill.scalar.signatures import SCALARS

MAX_TERMS = 10_000


@dataclass(frozen=True, slots=True)
class FunctionEnvironment:
    """Name resolution in the body of a function.

    `values` are the arguments by parameter name in lower case.
    """

    context: Context
    definition: FunctionDefinition
    values: Mapping[str, Expr]

    def column(self, node: exp.Column) -> Expr:
        found = None if node.table else self.values.get(node.name.lower())
        if found is None:
            names = self.definition.parameters.names
            hint = did_you_mean(node.name, names) or (
                f"its parameters are {', '.join(names)}" if names else "it has no parameters"
            )
            raise Mistake(f"{node.name} is no parameter of the function", span_of(node), hint)
        return found

    def call_names(self) -> list[str]:
        return [function.name for function in self.context.catalog.functions.values()]

    def call(self, node: exp.Anonymous) -> Expr | None:
        name = node.name.lower()
        if name == self.definition.name.lower():
            raise Mistake(
                "a function cannot call itself",
                span_of(node),
                "write it in Python: LANGUAGE PYTHON AS 'module:function'",
            )
        if name not in self.context.catalog.functions and is_aggregate(name, self.context.catalog):
            raise Mistake(
                f"a function works on one row, and {node.name} is an aggregate",
                span_of(node),
                "give the aggregate to the function as an argument, where it is called",
            )
        return function_call(node, self.context, self)

    def field(self, node: exp.Dot) -> Expr:
        raise Mistake("this has no fields", span_of(node))

    def over(self, node: nodes.Over) -> Expr:
        raise Mistake(
            "a function works on one row", span_of(node), "give it the value of the window as an argument"
        )

    def query(self, node: exp.Expression, scalar: bool, member: exp.Expression | None = None) -> Expr:
        del scalar, member
        raise Mistake("a function has no sub-query", span_of(node), "join the table, or write an aggregate")


def parsed_body(text: str) -> exp.Expression:
    return expressions.expression(Cursor(tokenize(text), text))


def function_call(node: exp.Anonymous, context: Context, env: ScalarEnvironment) -> Expr | None:
    """Inline a call of a user-defined function; None for other functions."""
    name = node.name.lower()
    definition = context.catalog.functions.get(name)
    if definition is None:
        if name in context.broken and name not in SCALARS:
            raise Unknowable
        if name not in SCALARS:
            context.refuse_later(node.name, span_of(node))
        return None
    context.functions_called.add(definition.name.lower())
    if isinstance(definition.returns, Schema):
        raise Mistake(
            f"{definition.name} returns rows",
            span_of(node),
            f"write FROM TABLE({definition.name}(…)) AS name",
        )
    if child(node, "distinct") or any(isinstance(a, exp.Star) for a in node.expressions):
        raise Mistake(f"{definition.name} is no aggregate", span_of(node), f"call it as {definition}")
    if len(node.expressions) != len(definition.parameters):
        raise Mistake(
            f"{definition.name} takes {counted(len(definition.parameters), 'argument')}, "
            f"not {len(node.expressions)}",
            span_of(node),
            f"call it as {definition}",
        )
    values: dict[str, Expr] = {}
    for parameter, argument_node in zip(definition.parameters, node.expressions, strict=True):
        argument = as_argument(bind(argument_node, env), parameter.type, argument_node)
        if not assignable(parameter.type, argument.type):
            raise Mistake(
                f"{definition.name} wants {parameter.type} for {parameter.name}, this is {argument.type}",
                span_of(argument_node),
                f"call it as {definition}",
            )
        values[parameter.name.lower()] = _as(argument, parameter.type)
    try:
        found = written_out(definition, values, context)
    except Mistake as mistake:
        said = mistake.diagnostic
        raise Mistake(f"in {definition.name}: {said.message}", span_of(node), said.hint) from None
    if _terms(found, {}) > MAX_TERMS:
        raise Mistake(
            f"this call of {definition.name}, written out, has more than {MAX_TERMS} terms",
            span_of(node),
            "compute the argument in a sub-query in FROM, and give its column",
        )
    return found


def written_out(definition: FunctionDefinition, values: Mapping[str, Expr], context: Context) -> Expr:
    """Return the body of a function with these arguments.

    The arguments have the types of the parameters.
    """
    assert isinstance(definition.returns, Type), "one that returns rows stands in FROM"
    if definition.external is not None:
        # Python does not enforce the length of a VARCHAR, so the call returns any length and is cast.
        whole = replace(definition.returns, length=None)
        return _as(Call(definition.external, tuple(values.values()), whole), definition.returns)
    assert definition.body is not None, "a function has a body, or is external"
    body = parsed_body(definition.body)
    value = bind(body, FunctionEnvironment(context, definition, values))
    value = as_argument(value, definition.returns, body)
    if not assignable(definition.returns, value.type) or not castable(value.type, definition.returns):
        raise Mistake(
            f"{definition.name} returns {definition.returns}, and this is {value.type}",
            span_of(body),
            f"write RETURNS {value.type}, or convert it with CAST",
        )
    return _as(value, definition.returns)


def _as(value: Expr, type_: Type) -> Expr:
    return value if value.type == type_ else Cast(value, type_)


def _terms(expr: Expr, known: dict[int, int]) -> int:
    """Return the size of an inlined expression, counting shared parts repeatedly."""
    found = known.get(id(expr))
    if found is None:
        found = known[id(expr)] = 1 + sum(_terms(part, known) for part in children(expr))
    return found
