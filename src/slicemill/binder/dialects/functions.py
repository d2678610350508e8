"""Rewrite of function aliases, FILTER, lag() and explode() to plain ESL.

FILTER becomes a CASE around the argument, because aggregates skip NULLs. Calls with equal conditions get
equal arguments, so that they share their state.
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.binder.calls import is_aggregate
from slicemill.binder.context import Context
from slicemill.binder.dialects.clauses import bare_call, column, replace_in_clauses
from slicemill.binder.from_clause import from_entries
from slicemill.sql import nodes
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import at, child, span_of

_OTHER_NAMES = {
    "first_value": "first",
    "last_value": "last",
    "any_value": "first",
    "bool_and": "min",
    "every": "min",
    "bool_or": "max",
    "some": "max",
    "any": "max",
}
_CONDITIONS = ("bool_and", "every", "bool_or", "some", "any")
ELEMENTS = ("explode", "explode_outer", "unnest")  # functions that return a row for each list element
WINDOW_CALLS = (
    *("window", "session_window", "tumble", "hop", "session", "cumulate", "window_time"),
    *(f"{kind}_{word}" for kind in ("tumble", "hop", "session") for word in ("start", "end", "rowtime")),
)
CHANGED = frozenset({*_OTHER_NAMES, "count_if", "lag", "lead"})

# Position of the argument that makes an aggregate skip a tuple if the argument is NULL.
_SKIPS = {
    **dict.fromkeys(
        (
            *("count", "sum", "avg", "mean", "min", "max", "median", "percentile", "quantile", "listagg"),
            *("string_agg", "variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop"),
            *("skewness", "kurtosis", "collect_list", "array_agg", "collect_set"),
        ),
        0,
    ),
    "min_by": 1,
    "max_by": 1,
}


def rewrite_calls(select: exp.Select, context: Context) -> None:
    def plain(node: exp.Expression) -> exp.Expression | None:
        if isinstance(node, nodes.Over) and is_builtin(node.this, "lag", context):
            return _rewrite_lag(node)
        if isinstance(node, nodes.Over) and is_builtin(node.this, "lead", context):
            return node  # `rewrite_lead` rewrites this call later
        if not isinstance(node, exp.Anonymous) or node.name.lower() in context.catalog.functions:
            return None
        if is_aggregate(node.name, context.catalog) and child(node, "filter") is None:
            return None
        return _rewrite_call(node, context)

    replace_in_clauses(select, plain)


def is_builtin(call: exp.Anonymous, name: str, context: Context) -> bool:
    """Return True for a call of a built-in function without a user-defined replacement."""
    return call.name.lower() == name and not is_aggregate(name, context.catalog)


def _rewrite_call(node: exp.Anonymous, context: Context) -> exp.Expression | None:
    name, condition = node.name.lower(), child(node, "filter")
    if name in ("lag", "lead"):
        raise StatementError(
            f"{name} needs a window with OVER",
            span_of(node),
            f"write {to_esl(node)} OVER (PARTITION BY k)",
        )
    if name in ("window", "session_window"):
        raise StatementError(
            f"{node.name} has a start and an end, and no value of its own",
            span_of(node),
            f"write {name}.start AS a, {name}.end AS b in a query with GROUP BY {name}(ts, '10 minutes')",
        )
    if name in WINDOW_CALLS:
        raise StatementError(
            f"{node.name} belongs to a query that is grouped by a window",
            span_of(node),
            "write SELECT k, count(*), window_start() FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k",
        )
    if name in (*ELEMENTS, "posexplode", "inline"):
        raise StatementError(
            f"{node.name} returns rows, not a value",
            span_of(node),
            "put it into FROM: FROM s, UNNEST(list) AS t(x)",
        )
    if name in ("proctime", "current_row_timestamp"):
        raise StatementError(
            f"{node.name}() returns a different value in each run",
            span_of(node),
            "declare the stream (…, current_time timestamp) ORDER BY current_time, and use that column",
        )
    if name == "count_if":
        _one_argument(node)
        condition = (
            node.expressions[0]
            if condition is None
            else exp.And(this=node.expressions[0], expression=condition)
        )
        return bare_call("count", _where(condition, exp.Literal.number(1)))
    if name in _CONDITIONS:
        _one_argument(node)
    if name in _OTHER_NAMES:
        node.set("this", _OTHER_NAMES[name])
        name = _OTHER_NAMES[name]
    elif condition is None:
        return None
    if condition is None:
        return node
    if not is_aggregate(name, context.catalog):
        raise StatementError(
            f"FILTER goes with aggregates, and {node.name} is none", span_of(node), "use CASE WHEN"
        )
    return _rewrite_filter(node, name, condition, context)


def _rewrite_filter(
    node: exp.Anonymous, name: str, condition: exp.Expression, context: Context
) -> exp.Expression:
    own = any(context.catalog.aggregates(node.name)) or name in context.catalog.callables
    arguments = list(node.expressions)
    if name == "first" and not own and len(arguments) == 1:
        # `min_by(x, 1)` returns x of the oldest tuple. Unlike other aggregates, `first` does not skip NULLs.
        return bare_call("min_by", arguments[0], _where(condition, exp.Literal.number(1)))
    if own or name not in _SKIPS or len(arguments) <= _SKIPS[name]:
        raise StatementError(
            f"{node.name} does not skip NULLs, so it does not support FILTER",
            span_of(node),
            "select the tuples first: FROM (SELECT * FROM s WHERE …) AS t",
        )
    place = _SKIPS[name]
    star = isinstance(arguments[place], exp.Star)
    arguments[place] = _where(condition, exp.Literal.number(1) if star else arguments[place])
    call = bare_call(node.name, *arguments)
    if child(node, "distinct"):
        call.set("distinct", True)
    return call


def _rewrite_lag(node: nodes.Over) -> exp.Expression:
    """Rewrite lag(x, n) to first(x) over n + 1 rows.

    If there are fewer rows, the result is the default value of lag.
    """
    call, frame = node.this, child(node, "frame")
    count, default = offset_of(call), call.expressions[2] if len(call.expressions) > 2 else None
    if len(call.expressions) > 3:
        raise StatementError("lag takes a value, how many rows back, and a default", span_of(call))
    if frame is not None:
        raise StatementError(
            "lag counts rows itself", span_of(frame), "leave the frame out; lag(x, 2) is two rows before"
        )
    if child(call, "filter") is not None:
        raise StatementError(
            "lag has no FILTER", span_of(call), "select the rows in FROM (SELECT … WHERE …) AS t"
        )
    enough = exp.GT(
        this=over_preceding_rows(node, bare_call("count", exp.Star()), count),
        expression=exp.Literal.number(count),
    )
    value = over_preceding_rows(node, bare_call("first", call.expressions[0]), count)
    return exp.Case(ifs=[exp.If(this=enough, true=value)], default=default)


def offset_of(call: exp.Anonymous) -> int:
    """Return the constant row offset of lag() or lead()."""
    if not call.expressions or isinstance(call.expressions[0], exp.Star):
        raise StatementError(f"{call.name} takes a value", span_of(call), f"as in {call.name}(price)")
    if len(call.expressions) < 2:
        return 1
    written = call.expressions[1]
    if not (isinstance(written, exp.Literal) and written.name.isdigit() and int(written.name) < 2**31):
        raise StatementError(
            f"{call.name} needs a constant number of rows", span_of(written), f"as in {call.name}(price, 2)"
        )
    return int(written.name)


def over_preceding_rows(over: nodes.Over, call: exp.Anonymous, count: int) -> nodes.Over:
    """Return a call over the current and `count` preceding rows.

    The window has the partition keys of `over`.
    """
    frame = nodes.FrameClause(kind="ROWS", this=exp.Literal.number(count))
    partition = child(over, "partition_by")
    order = child(over, "order")
    made = nodes.Over(this=call, frame=frame)
    made.set("partition_by", [part.copy() for part in partition] if partition else None)
    made.set("order", order.copy() if order is not None else None)
    for node in (call, frame, made):
        node.meta["span"] = span_of(over)
    return made


def _where(condition: exp.Expression, value: exp.Expression) -> exp.Expression:
    case = exp.Case(ifs=[exp.If(this=condition, true=value)])
    case.meta["span"] = span_of(condition)
    return case


def _one_argument(node: exp.Anonymous) -> None:
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Star):
        raise StatementError(f"{node.name} takes a condition", span_of(node), f"as in {node.name}(price > 9)")


# Rewrite of `SELECT explode(l) AS x FROM s` to `SELECT x FROM s, UNNEST(l) AS x`


def rewrite_explode(select: exp.Select, context: Context) -> None:
    """Move the list of explode() from the select list to FROM."""
    found = [place for place, item in enumerate(select.expressions) if _is_call(item, context)]
    if not found:
        return
    items = list(select.expressions)
    place, *others = found
    item = items[place]
    call = item.this if isinstance(item, exp.Alias) else item
    if others or len(call.expressions) != 1:
        raise StatementError(
            "a select list can have only one explode()",
            span_of(items[others[0]] if others else call),
            "put both into FROM: FROM s, UNNEST(a) AS t(x), UNNEST(b) AS u(y)",
        )
    name = item.alias if isinstance(item, exp.Alias) else "col"
    elements = nodes.StreamInput(this=at(nodes.ListElements(this=call.expressions[0]), span_of(call)))
    elements.set("alias", exp.Identifier(this=name, quoted=True))
    join = nodes.JoinInput(this=at(elements, span_of(call)), side="CROSS")
    if call.name.lower() == "explode_outer":
        on = at(exp.Boolean(this=True), span_of(call))
        join = nodes.JoinInput(this=elements, side="LEFT", on=on)
    items[place] = at(exp.Alias(this=at(column(name, name), span_of(call)), alias=name), span_of(item))
    own = [_alias(entry) for entry, _ in from_entries(select)]
    listed: list[exp.Expression] = []
    for one in items:
        # A star expands only to the columns of the user's FROM entries, not to those of the added UNNEST.
        listed += [at(_star(alias), span_of(one)) for alias in own] if isinstance(one, exp.Star) else [one]
    select.set("expressions", listed)
    select.set("entries", [*child(select, "entries"), at(join, span_of(call))])


def _star(alias: str) -> exp.Column:
    return exp.Column(this=exp.Star(), table=exp.Identifier(this=alias, quoted=True))


def _is_call(item: exp.Expression, context: Context) -> bool:
    call = item.this if isinstance(item, exp.Alias) else item
    if not isinstance(call, exp.Anonymous) or call.name.lower() not in ELEMENTS:
        return False
    return call.name.lower() not in context.catalog.functions and not is_aggregate(call.name, context.catalog)


def _alias(entry: nodes.StreamInput) -> str:
    alias = child(entry, "alias")
    if alias is None and not isinstance(entry.this, exp.Identifier):
        alias = exp.Identifier(this="rows", quoted=True)
        entry.set("alias", alias)
    return str(alias.name if alias is not None else entry.this.name)
