"""Resolution of calls of aggregates, models and user-defined functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from slicemill.binder.context import BrokenDependency, Context, check_constant
from slicemill.binder.expressions import ScalarEnvironment, as_argument, bind
from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import Call, Cast, ColumnRef, Expr, Literal, children
from slicemill.catalog.function import FunctionDefinition
from slicemill.catalog.queries import Window
from slicemill.errors import did_you_mean, format_count
from slicemill.extension import load, predefined_names
from slicemill.functions.signatures import SCALARS, castable, fits
from slicemill.sql import nodes
from slicemill.sql.cursor import Cursor
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.grammar import expressions
from slicemill.sql.lexer import tokenize
from slicemill.sql.nodes import child, span_of
from slicemill.types import BIGINT, Column, Kind, Schema, Type, assignable


@dataclass(frozen=True, slots=True)
class ResolvedCall:
    """Aggregate call with its definition and checked arguments.

    `blocking` is set if the aggregate emits only at the end of its input. `written` is the function name in
    the text, and `name` is the name of the definition. For an instance of a model, `name` includes the values
    of its constants.
    """

    name: str
    written: str
    arguments: tuple[Expr, ...]
    distinct: bool
    columns: tuple[Column, ...]
    blocking: bool
    base: AggregateDefinition | None
    window: AggregateDefinition | None
    builtin: bool


def single_column(node: exp.Anonymous, columns: Sequence[Column]) -> ColumnRef:
    """Return the only column that a call used as a value returns."""
    first, *others = columns
    if others:
        raise StatementError(
            f"{node.name} returns several columns",
            span_of(node),
            f"take one: {to_esl(node)}.{field_of(first)}",
        )
    return ColumnRef.to(first)


def is_aggregate(name: str, catalog: Catalog) -> bool:
    key = name.lower()
    builtin = key in BUILTINS and key not in catalog.functions
    return builtin or key in catalog.callables or any(catalog.aggregates(name))


def callable_names(catalog: Catalog) -> list[str]:
    """Return the names of all aggregates, models and user-defined functions, for hints."""
    return [
        *BUILTINS,
        *predefined_names(),
        *(function.name for function in catalog.functions.values()),
        *(d.name for d in (*catalog.base_aggregates.values(), *catalog.window_aggregates.values())),
        *(one.name for one in catalog.callables.values()),
    ]


def resolve_calls(
    node: exp.Anonymous, arguments: Sequence[Expr], catalog: Catalog, over: str = ""
) -> list[ResolvedCall]:
    """Return the aggregates to which a call resolves.

    A call of a model may resolve to several aggregates.
    """
    if child(node, "filter") is not None:
        raise StatementError(
            "FILTER is not allowed here", span_of(node), "put the condition into a CASE WHEN"
        )
    declared = catalog.callables.get(node.name.lower())
    if declared is None or declared.bind_call is None:
        return [_resolve_aggregate(node, arguments, catalog, over)]
    found: list[ResolvedCall] = load(declared.bind_call)(
        declared, node, arguments, catalog, over or to_esl(node)
    )
    return found


def _resolve_aggregate(
    node: exp.Anonymous, arguments: Sequence[Expr], catalog: Catalog, over: str
) -> ResolvedCall:
    """Resolve a call of an aggregate.

    Without OVER, a built-in aggregate takes precedence over a user's aggregate over windows of that name.
    """
    base, window = catalog.aggregates(node.name)
    text = over or to_esl(node)
    if not over and base is None and node.name.lower() in BUILTINS:
        window = None
    if base is None and window is None:
        return _builtin(node, arguments, text)
    return checked_call(node, arguments, (base, window), text)


def checked_call(
    node: exp.Anonymous,
    arguments: Sequence[Expr],
    versions: tuple[AggregateDefinition | None, AggregateDefinition | None],
    text: str,
    usage: str = "",
    constants: int = 0,
) -> ResolvedCall:
    """Check the arguments of a call of a user-defined aggregate.

    `constants` is the number of additional arguments, which the caller has checked.
    """
    base, window = versions
    definition = base or window
    assert definition is not None
    usage = usage or _usage(definition)
    if _star(node) or child(node, "distinct"):
        raise StatementError(f"{node.name} takes neither * nor DISTINCT", span_of(node), usage)
    if len(arguments) != len(definition.arguments):
        raise StatementError(
            f"{node.name} takes {len(definition.arguments) + constants} arguments, "
            f"not {len(arguments) + constants}",
            span_of(node),
            usage,
        )
    for argument, declared, argument_node in zip(
        arguments, definition.arguments, node.expressions, strict=False
    ):
        if not assignable(declared.type, argument.type):
            raise StatementError(
                f"{node.name} wants {declared.type} for {declared.name}, this is {argument.type}",
                span_of(argument_node),
                usage,
            )
    returns = definition.returns.columns
    columns = (
        (Column(text, returns[0].type),)
        if len(returns) == 1
        else tuple(column.of(text) for column in returns)
    )
    blocking = base.blocking if base is not None else True
    return ResolvedCall(
        definition.name, node.name, tuple(arguments), False, columns, blocking, base, window, False
    )


def check_call_windows(
    definition: AggregateDefinition | None,
    windows: Iterable[Window | None],
    node: exp.Expression,
    *,
    over: bool = False,
    grouped: bool = False,
) -> None:
    """Raise StatementError if an aggregate's provider rejects the windows of a call."""
    provider = None if definition is None else definition.provider
    if provider is not None and provider.check is not None:
        load(provider.check)(definition, windows, node, over=over, grouped=grouped)


def _star(node: exp.Anonymous) -> bool:
    return len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Star)


def _builtin(node: exp.Anonymous, arguments: Sequence[Expr], text: str) -> ResolvedCall:
    star, distinct = _star(node), bool(child(node, "distinct"))
    builtin = BUILTINS[node.name.lower()]
    usage = builtin.usage
    if star and not builtin.takes_star:
        raise StatementError(f"{builtin.name} does not take *", span_of(node), usage)
    if distinct and not builtin.takes_distinct:
        raise StatementError(
            f"{builtin.name} does not take DISTINCT",
            span_of(node),
            "DISTINCT goes with count and collect_list",
        )
    if star:
        return ResolvedCall("count", node.name, (), False, (Column(text, BIGINT),), True, None, None, True)
    most = len(builtin.parameters)
    if not most - builtin.optional <= len(arguments) <= most:
        raise StatementError(f"{builtin.name} does not take {len(arguments)} arguments", span_of(node), usage)
    for argument, wanted, argument_node in zip(arguments, builtin.parameters, node.expressions, strict=False):
        if argument.type.kind is Kind.LIST:
            hint = "take one value of it, element_at(list, 1), or how many there are, size(list)"
            raise StatementError(f"{builtin.name} takes no lists", span_of(argument_node), hint)
        if not fits(wanted, argument.type):
            raise StatementError(
                f"{builtin.name} wants {wanted} here, this is {argument.type}", span_of(argument_node)
            )
    for range_, argument, argument_node in zip(builtin.ranges, arguments, node.expressions, strict=False):
        if range_ is not None and (not isinstance(argument, Literal) or argument.value is None):
            hint = "it has to be the same for all tuples"
            raise StatementError(f"{builtin.name} wants a constant here", span_of(argument_node), hint)
        check_constant(builtin.name, range_, argument, argument_node, builtin.hint)
    type_ = builtin.result(arguments[0].type)
    columns = (Column(text, type_),)
    return ResolvedCall(builtin.name, node.name, tuple(arguments), distinct, columns, True, None, None, True)


def field_of(column: Column) -> str:
    """Return the name of a column that a call returns, without the text of the call."""
    return column.origin.column if column.origin is not None else column.name


def read_field(node: exp.Dot, columns: Sequence[Column] | None) -> Expr:
    """Return the column that an expression `call.column` reads."""
    if columns is None:
        raise StatementError("this expression has no fields", span_of(node))
    wanted = node.expression.name.lower()
    for column in columns:
        if field_of(column).lower() == wanted:
            return ColumnRef.to(column)
    hint = did_you_mean(wanted, [field_of(column) for column in columns])
    raise StatementError(f"it returns no column {wanted}", span_of(node), hint)


def _usage(definition: AggregateDefinition) -> str:
    return f"it is declared as {definition.name}{definition.arguments}"


# Calls of user-defined scalar functions, whose bodies are inlined
#
# The body is bound again with the arguments of each call. So a function may be called in all expressions, and
# arguments that must be constant are checked at each call.


MAX_TERMS = 10_000


@dataclass(frozen=True, slots=True)
class FunctionEnvironment:
    """Name resolution in the body of a user-defined function.

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
            raise StatementError(f"{node.name} is no parameter of the function", span_of(node), hint)
        return found

    def call_names(self) -> list[str]:
        return [function.name for function in self.context.catalog.functions.values()]

    def call(self, node: exp.Anonymous) -> Expr | None:
        name = node.name.lower()
        if name == self.definition.name.lower():
            raise StatementError(
                "a function cannot call itself",
                span_of(node),
                "write it in Python: LANGUAGE PYTHON AS 'module:function'",
            )
        if name not in self.context.catalog.functions and is_aggregate(name, self.context.catalog):
            raise StatementError(
                f"a function works on one row, and {node.name} is an aggregate",
                span_of(node),
                "give the aggregate to the function as an argument, where it is called",
            )
        return function_call(node, self.context, self)

    def field(self, node: exp.Dot) -> Expr:
        raise StatementError("this expression has no fields", span_of(node))

    def over(self, node: nodes.Over) -> Expr:
        raise StatementError(
            "a function works on one row", span_of(node), "give it the value of the window as an argument"
        )

    def query(self, node: exp.Expression, scalar: bool, member: exp.Expression | None = None) -> Expr:
        del scalar, member
        raise StatementError(
            "a function has no sub-query", span_of(node), "join the table, or write an aggregate"
        )


def parse_body(text: str) -> exp.Expression:
    return expressions.expression(Cursor(tokenize(text), text))


def function_call(node: exp.Anonymous, context: Context, env: ScalarEnvironment) -> Expr | None:
    """Inline a call of a user-defined function.

    Return None for calls of all other functions.
    """
    name = node.name.lower()
    definition = context.catalog.functions.get(name)
    if definition is None:
        if name in context.broken and name not in SCALARS:
            raise BrokenDependency
        if name not in SCALARS:
            context.refuse_later(node.name, span_of(node))
        return None
    context.functions_called.add(definition.name.lower())
    if isinstance(definition.returns, Schema):
        raise StatementError(
            f"{definition.name} returns rows",
            span_of(node),
            f"write FROM TABLE({definition.name}(…)) AS name",
        )
    if child(node, "distinct") or any(isinstance(a, exp.Star) for a in node.expressions):
        raise StatementError(f"{definition.name} is no aggregate", span_of(node), f"call it as {definition}")
    if len(node.expressions) != len(definition.parameters):
        raise StatementError(
            f"{definition.name} takes {format_count(len(definition.parameters), 'argument')}, "
            f"not {len(node.expressions)}",
            span_of(node),
            f"call it as {definition}",
        )
    values: dict[str, Expr] = {}
    for parameter, argument_node in zip(definition.parameters, node.expressions, strict=True):
        argument = as_argument(bind(argument_node, env), parameter.type, argument_node)
        if not assignable(parameter.type, argument.type):
            raise StatementError(
                f"{definition.name} wants {parameter.type} for {parameter.name}, this is {argument.type}",
                span_of(argument_node),
                f"call it as {definition}",
            )
        values[parameter.name.lower()] = _cast_to(argument, parameter.type)
    try:
        found = inline_body(definition, values, context)
    except StatementError as mistake:
        said = mistake.diagnostic
        raise StatementError(f"in {definition.name}: {said.message}", span_of(node), said.hint) from None
    if _count_terms(found, {}) > MAX_TERMS:
        raise StatementError(
            f"this call of {definition.name}, written out, has more than {MAX_TERMS} terms",
            span_of(node),
            "compute the argument in a sub-query in FROM, and give its column",
        )
    return found


def inline_body(definition: FunctionDefinition, values: Mapping[str, Expr], context: Context) -> Expr:
    """Return the bound body of a function with arguments in place of parameters.

    The arguments have the types of the parameters.
    """
    assert isinstance(definition.returns, Type), "one that returns rows stands in FROM"
    if definition.external is not None:
        # A Python function does not enforce the length of a VARCHAR, so its result is cast.
        whole = replace(definition.returns, length=None)
        return _cast_to(Call(definition.external, tuple(values.values()), whole), definition.returns)
    assert definition.body is not None, "a function has a body, or is external"
    body = parse_body(definition.body)
    value = bind(body, FunctionEnvironment(context, definition, values))
    value = as_argument(value, definition.returns, body)
    if not assignable(definition.returns, value.type) or not castable(value.type, definition.returns):
        raise StatementError(
            f"{definition.name} returns {definition.returns}, and this is {value.type}",
            span_of(body),
            f"write RETURNS {value.type}, or convert it with CAST",
        )
    return _cast_to(value, definition.returns)


def _cast_to(value: Expr, type_: Type) -> Expr:
    return value if value.type == type_ else Cast(value, type_)


def _count_terms(expr: Expr, known: dict[int, int]) -> int:
    """Return the number of terms in an inlined expression.

    A sub-expression that occurs several times is counted for each occurrence.
    """
    found = known.get(id(expr))
    if found is None:
        found = known[id(expr)] = 1 + sum(_count_terms(part, known) for part in children(expr))
    return found
