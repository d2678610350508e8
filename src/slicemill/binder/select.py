"""Binder of a continuous SELECT: inputs, conditions, groups, aggregates and output columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from slicemill.binder import windows as durations
from slicemill.binder.calls import ResolvedCall, check_call_windows
from slicemill.binder.changelog import HIDDEN_COUNT, refuse_changes, refuse_over_changes, refuse_unretractable
from slicemill.binder.context import Context, ErrorCollector
from slicemill.binder.environments import SelectEnvironment
from slicemill.binder.expressions import bind, bind_condition, bind_key
from slicemill.binder.first_rows import bind_top_n
from slicemill.binder.from_clause import (
    BoundInput,
    bind_inputs,
    check_on,
    check_windows,
    inputs_of_on,
    is_outer_join_chain,
    merged_columns,
    on_scope,
    select_list_scope,
    time_columns_of,
    timestamp_column_inputs,
)
from slicemill.binder.joins import bind_as_of, refuse_groups, with_closings, with_expiries, with_windows
from slicemill.binder.scope import Scope
from slicemill.binder.select_list import (
    bind_items,
    read_groups,
    refuse_null_columns,
    schema_of_items,
    warn_of_equal_names,
    with_unique_names,
)
from slicemill.binder.semi_joins import as_joins
from slicemill.binder.table_functions import bind_table_call
from slicemill.binder.temporal import bind_temporal
from slicemill.binder.windows import duration_us
from slicemill.catalog.expressions import ColumnRef, Expr, conjunction, walk
from slicemill.catalog.queries import (
    FrameUnit,
    JoinKind,
    QueryInput,
    SelectItem,
    SelectQuery,
    SessionWindow,
    joins_changes,
    reads_changes,
)
from slicemill.sql import nodes
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import at, child, span_of
from slicemill.types import Kind, Schema


def bind_select(node: exp.Select, context: Context) -> SelectQuery:
    """Bind a SELECT with at least one stream in FROM."""
    node = as_joins(node, context)
    entries = bind_inputs(node, context)
    refuse_changes(node, entries)
    if any(child(entry.node, "coalesce") for entry in entries):
        _refuse_clause(node, "distinct", "runs of equal attributes are one already")
        _refuse_clause(node, "order", "results are already in timestamp order")
        _refuse_clause(node, "limit", "a continuous query ends when you drop it")
        return bind_temporal(node, entries, context)
    inputs = _inputs_with_windows(entries, node)
    merged = merged_columns([(entry.using, entry.input) for entry in entries if entry.using], inputs)
    scope = select_list_scope(inputs, merged)
    asked = _sub_queries(node)
    if asked:
        _refuse_queries(asked[0], inputs)
        scope = replace(scope, qualified=True)  # calls that compute sub-queries are additional inputs
    env = SelectEnvironment(context, scope, time_columns_of(inputs, scope, context.catalog))
    env.queries_allowed = bool(asked)
    problems = ErrorCollector()

    inputs = _with_calls(entries, inputs, env, problems)
    where, inputs = _bind_conditions(node, entries, inputs, env, problems)
    inputs = with_expiries(entries, inputs, env, problems)
    inputs = with_closings(entries, inputs, env, problems)
    groups = _bind_groups(node, env, problems)
    session = bind_session(entries, env, problems)
    if session is not None:
        inputs = [replace(given, window=None) for given in inputs]
    env.bounds_allowed = session is not None or any(
        i.window is not None and i.window.slide is not None for i in inputs
    )
    bound = bind_items(node.expressions, env, scope, context, problems)
    having_node = child(node, "having")
    having: Expr | None = None
    with problems.collect():
        if having_node is not None:
            env.windows_allowed = env.queries_allowed = False
            having = bind_condition(having_node.this, env)
            env.windows_allowed, env.queries_allowed = True, bool(asked)
    problems.raise_any()
    first = bind_top_n(node, env, bound)
    for call in env.sub_query_calls:
        made = QueryInput(call.alias, call.schema, finite=True, call=call)
        inputs.append(made)
        entry = nodes.StreamInput(this=exp.Identifier(this=call.alias))
        entries.append(BoundInput(made, at(entry, span_of(node))))

    # GROUPING SETS (()) is one group without keys, even without an aggregate.
    one_group = _has_group_by(node) and not groups
    grouped = bool(env.resolved or groups or one_group)
    if grouped:
        bound = [
            (SelectItem(item.name, _read_groups(item.expr, item_node, groups, env)), item_node)
            for item, item_node in bound
        ]
        if having is not None:
            having = _read_groups(having, having_node.this, groups, env)
        first = first.over_groups(lambda expr, place: _read_groups(expr, place, groups, env))
    elif having is not None:
        raise StatementError("HAVING selects groups, and there are none", span_of(having_node), "use WHERE")
    inputs = bind_as_of(entries, inputs, env)
    blocking = any(resolved.blocking for resolved in env.resolved.values())
    if any(given.closes is not None for given in inputs):
        if blocking:
            refuse_groups(inputs, node)
    elif not joins_changes(inputs):
        inputs, where = with_windows(
            inputs,
            where,
            timestamp_column_inputs(inputs, on_scope(scope, inputs), context.catalog),
            [entry.node for entry in entries],
            narrow=not blocking,
        )
        check_windows(inputs, node, aggregates=blocking)
        if blocking:
            refuse_groups(inputs, node)
    _check_aggregates(node, env, grouped, inputs, session)
    refuse_null_columns(bound, problems)
    problems.raise_any()
    items = with_unique_names([item for item, _ in bound])
    warn_of_equal_names(bound, context)
    query = SelectQuery(
        inputs=tuple(inputs),
        where=where,
        group_by=tuple(groups),
        aggregates=env.aggregates or ((HIDDEN_COUNT,) if one_group else ()),
        running=any(not resolved.blocking for resolved in env.resolved.values()),
        having=having,
        window_calls=tuple(env.window_calls.values()),
        coalesce=None,
        items=items,
        schema=schema_of_items(items),
        session=session,
        changing=session is None and grouped and _emits_changelog(env, inputs),
    )
    if (
        query.changing
        and not _has_group_by(node)
        and child(node, "emit") is None
        and not reads_changes(inputs)
    ):
        _warn_of_changes(node, env)
    return first.apply_to(query, node, entries)


def _has_group_by(node: exp.Select) -> bool:
    return child(node, "group") is not None


def _warn_of_changes(node: exp.Select, env: SelectEnvironment) -> None:
    """Warn of a blocking aggregate over a stream without a window.

    The result of the aggregate changes with each input row.
    """
    blocking = next((resolved for resolved in env.resolved.values() if resolved.blocking), None)
    if blocking is not None:
        env.context.warn(
            f"{blocking.name} is over all rows so far: its row is updated with each row of the stream",
            span_of(_find_call(node, blocking)),
            "write EMIT CHANGES if this is meant; or give the stream a window, [RANGE 1 HOUR SLIDE 1 HOUR]",
        )


def _sub_queries(node: exp.Select) -> list[exp.Expression]:
    """Return the sub-queries over tables outside FROM.

    Sub-queries over streams have already been rewritten to joins.
    """
    keys = ("where", "group", "having", "qualify", "order")
    clauses = [*node.expressions, *(clause for key in keys if (clause := child(node, key)) is not None)]
    return [part for clause in clauses for part in clause.find_all(exp.Exists, exp.Subquery)]


def _refuse_queries(asked: exp.Expression, inputs: Sequence[QueryInput]) -> None:
    """Reject sub-queries if FROM has changelogs or windows that count rows."""
    place = span_of(asked)
    changing = next((given for given in inputs if given.schema.changelog), None)
    if changing is not None:
        raise StatementError(
            f"{changing.alias} is a changelog, and rows that it looks up in a table may change later",
            place,
            f"ask for the stream that {changing.alias} is made of",
        )
    if any(given.window is not None and given.window.frame is FrameUnit.ROWS for given in inputs):
        raise StatementError(
            "a sub-query is computed before rows enter a window, and this window counts rows",
            place,
            "select in a stream, CREATE STREAM t AS SELECT … WHERE …, and aggregate FROM t [ROWS …]",
        )


def _emits_changelog(env: SelectEnvironment, inputs: list[QueryInput]) -> bool:
    """Return True if groups have no window, so that their results change."""
    windowed = any(i.window is not None and i.window.extent is not None for i in inputs)
    return not windowed and all(resolved.blocking for resolved in env.resolved.values())


_BLOCKING = {"distinct": "DISTINCT", "order": "ORDER BY", "limit": "LIMIT"}


def _refuse_clause(node: exp.Select, key: str, hint: str) -> None:
    """Reject a clause that needs the end of the input, such as ORDER BY."""
    clause = child(node, key)
    if clause is not None:
        place = span_of(clause) if span_of(clause).end else span_of(node)
        raise StatementError(
            f"{_BLOCKING[key]} needs the end of the input, and a stream has none", place, hint
        )


def _inputs_with_windows(entries: list[BoundInput], node: exp.Select) -> list[QueryInput]:
    """Return the inputs, each with its window.

    An input without a window gets the window of the WINDOW clause.
    """
    trailing_node = child(node, "window")
    trailing = durations.from_window(trailing_node) if trailing_node is not None else None
    inputs = []
    for entry in entries:
        bound = entry.input
        if bound.finite:
            if bound.window is not None:
                raise StatementError(
                    f"{bound.alias} is finite, so it needs no window",
                    span_of(child(entry.node, "frame")),
                    "leave the window out",
                )
        elif bound.window is None and trailing is not None:
            bound = replace(bound, window=trailing)
        inputs.append(bound)
    growing = [entry for entry in entries if entry.input.window is not None and entry.input.window.grows]
    if growing and sum(not one.finite for one in inputs) > 1:
        raise StatementError(
            "CUMULATE windows need a query over one stream",
            span_of(growing[0].node),
            "aggregate over each first",
        )
    slides = {i.window.slide for i in inputs if i.window is not None and i.window.slide is not None}
    if len(slides) > 1:
        raise StatementError(
            "all windows of a query must have one SLIDE", span_of(node), "give one SLIDE for all"
        )
    return inputs


def _with_calls(
    entries: list[BoundInput], inputs: list[QueryInput], env: SelectEnvironment, problems: ErrorCollector
) -> list[QueryInput]:
    """Bind TABLE(…) calls in FROM.

    The arguments of a call may read streams, and tables that precede the call.
    """
    made: list[QueryInput] = []
    env.place = "TABLE(…)"
    for entry, bound in zip(entries, inputs, strict=True):
        if isinstance(entry.node.this, nodes.TableFunctionCall):
            with problems.collect():
                call = bind_table_call(
                    entry.node.this, bound.alias, env.context, lambda node: bind(node, env)
                )
                known = {i.alias for i in (*made, *(i for i in inputs if not i.finite))}
                for part in (part for _, value in call.arguments or () for part in walk(value)):
                    owner = part.origin.input if isinstance(part, ColumnRef) and part.origin else None
                    if owner is not None and owner not in known:
                        raise StatementError(
                            f"{owner} follows the call that reads it in FROM",
                            span_of(entry.node),
                            f"name {owner} before it in FROM",
                        )
                bound = replace(bound, call=call)
        made.append(bound)
    env.place = ""
    return made


def _bind_conditions(
    node: exp.Select,
    entries: list[BoundInput],
    inputs: list[QueryInput],
    env: SelectEnvironment,
    problems: ErrorCollector,
) -> tuple[Expr | None, list[QueryInput]]:
    """Bind WHERE and ON.

    The ON condition of an inner join is merged into WHERE. Other joins keep their ON condition.
    """
    parts: list[Expr] = []
    finished: list[QueryInput] = []
    env.place = "WHERE"
    in_turn = is_outer_join_chain(inputs)
    for place, (entry, bound) in enumerate(zip(entries, inputs, strict=True)):
        with problems.collect():
            if entry.on is not None:
                check_on(inputs, place, entry.on)
                asking, env.queries_allowed = env.queries_allowed, False
                with env.use_scope(_scope_of_on(env.scope, entries, inputs, place)):
                    condition = bind_condition(entry.on, env)
                env.queries_allowed = asking
                if entry.left:
                    bound = replace(bound, left_on=condition)
                elif entry.is_as_of or bound.kind is not JoinKind.INNER or (in_turn and not bound.finite):
                    bound = replace(bound, on=condition)
                else:
                    parts.append(condition)
        finished.append(bound)
    where = child(node, "where")
    with problems.collect():
        if where is not None:
            parts.append(bind_condition(where.this, env))
    env.place = ""
    return conjunction(tuple(parts)), finished


def _scope_of_on(scope: Scope, entries: list[BoundInput], inputs: list[QueryInput], place: int) -> Scope:
    """Return the scope of an ON condition.

    In a chain of joins, ON can read only the inputs up to its join.
    """
    if not is_outer_join_chain(inputs):
        return on_scope(scope, inputs)
    using = [(entry.using, entry.input) for entry in entries[:place] if entry.using]
    merged = merged_columns(using, inputs[:place])
    return replace(on_scope(scope, inputs_of_on(inputs, place)), merged=merged)


def _bind_groups(node: exp.Select, env: SelectEnvironment, problems: ErrorCollector) -> list[SelectItem]:
    group = child(node, "group")
    if group is None:
        return []
    groups: list[SelectItem] = []
    env.place = "GROUP BY"
    for part in group.expressions:
        with problems.collect():
            expr = bind_key(part, env)
            name = expr.name if isinstance(expr, ColumnRef) else to_esl(part)
            groups.append(SelectItem(name, expr))
    env.place = ""
    return groups


def _read_groups(expr: Expr, node: exp.Expression, groups: list[SelectItem], env: SelectEnvironment) -> Expr:
    return read_groups(expr, node, groups, env.call_columns(), "column")


def _check_aggregates(
    node: exp.Select,
    env: SelectEnvironment,
    grouped: bool,
    inputs: list[QueryInput],
    session: SessionWindow | None,
) -> None:
    windows = [i.window for i in inputs if not i.finite]
    bounded = [w for w in windows if w is not None and w.extent is not None]
    if env.window_calls and grouped:
        raise StatementError(
            "GROUP BY and OVER cannot be used in one SELECT",
            span_of(node),
            "partition with PARTITION BY inside OVER, or make two queries",
        )
    refuse_over_changes(node, inputs, env.window_calls)
    if not env.resolved and (grouped or child(node, "distinct") is not None):
        if bounded and all(w.slide is None for w in bounded):
            raise StatementError(
                "a window that emits at each tuple has no distinct rows",
                span_of(node),
                "add SLIDE to the window, or leave the window out",
            )
        return
    if not env.resolved:
        slide = next((w for w in bounded if w.slide is not None), None)
        if slide is not None:
            raise StatementError(
                "SLIDE needs an aggregate",
                span_of(node),
                "leave SLIDE out, or put an aggregate into the select list; for the first rows of each "
                "window, write FROM TUMBLE(s, ts, INTERVAL '5' MINUTE) QUALIFY row_number() OVER "
                "(PARTITION BY window_start, window_end ORDER BY x DESC) <= 3",
            )
        if session is not None:
            raise StatementError(
                "a session window needs an aggregate",
                span_of(node),
                "put an aggregate into the select list, such as count(*)",
            )
        return
    # If aggregates emit at each tuple, the windows of FROM belong to the join and not to the aggregates.
    joined = len(windows) > 1
    running = joined and any(not resolved.blocking for resolved in env.resolved.values())
    if joined and not running and any(w.frame is FrameUnit.ROWS for w in bounded):
        raise StatementError(
            "an aggregate over a join needs windows by time",
            span_of(node),
            "use RANGE, or aggregate over a stream made from the join",
        )
    if running and any(w.slide is not None for w in bounded):
        raise StatementError(
            "an aggregate that emits at each tuple cannot have SLIDE", span_of(node), "leave SLIDE out"
        )
    for resolved in env.resolved.values():
        refuse_unretractable(resolved, _find_call(node, resolved), inputs)
        changing = any(given.schema.changelog for given in inputs)
        _check_aggregate(node, resolved, (bool(bounded) and not running) or session is not None or changing)
        if resolved.base is not None and resolved.base.provider is not None:
            in_groups = _has_group_by(node) or joined
            check_call_windows(resolved.base, windows, _find_call(node, resolved), grouped=in_groups)


def _check_aggregate(node: exp.Select, resolved: ResolvedCall, windowed: bool) -> None:
    """Check the windows of an aggregate call.

    `windowed` is set if aggregates of the query range over windows of FROM.
    """
    call = _find_call(node, resolved)
    if not windowed and resolved.blocking and not resolved.builtin:
        raise StatementError(
            f"{resolved.name} emits at the end of its input, and a stream has no end",
            span_of(call),
            f"give it a window: {to_esl(call)} OVER (RANGE 1 HOUR PRECEDING), or FROM … [RANGE 1 HOUR]",
        )
    if windowed and not resolved.blocking:
        raise StatementError(
            f"{resolved.name} emits at each tuple, so it cannot use a window in FROM",
            span_of(call),
            "leave the window out, or use OVER",
        )
    if resolved.base is None and not resolved.builtin:
        raise StatementError(
            f"{resolved.name} has only a window version",
            span_of(call),
            f"call it with OVER: {to_esl(call)} OVER (…)",
        )


def _find_call(node: exp.Select, resolved: ResolvedCall) -> exp.Expression:
    """Return the syntax node of a call, for error messages."""
    for call in node.find_all(exp.Anonymous):
        if call.name.lower() == resolved.written.lower() and not isinstance(call.parent, nodes.Over):
            return call
    return node


def rename_columns(select: SelectQuery, items: tuple[SelectItem, ...]) -> SelectQuery:
    """Return a branch of a UNION with the output columns of the UNION."""
    shown = items[len(items) - len(select.schema) :]
    schema = Schema(schema_of_items(shown).columns, select.schema.changelog)
    return replace(select, items=items, schema=schema)


# Session windows: `[SESSION 30 SECONDS]`, `[SESSION UNTIL expires]`, `[SESSION 1 HOUR CLOSE WHEN last]`
#
# `[CLOSE WHEN last]` on a stream that is not joined is a punctuation window: a session without a gap,
# closed by a tuple that fulfils the condition.


def bind_session(
    entries: Sequence[BoundInput], env: SelectEnvironment, problems: ErrorCollector
) -> SessionWindow | None:
    """Return the session window over which a SELECT aggregates, or None."""
    framed = [(entry, child(entry.node, "frame")) for entry in entries]
    alone = sum(not entry.input.finite for entry in entries) < 2
    found = [
        (entry, frame)
        for entry, frame in framed
        if frame is not None
        and (child(frame, "kind") == "SESSION" or (alone and child(frame, "close") is not None))
    ]
    if not found:
        return None
    entry, frame = found[0]
    session = SessionWindow()
    with problems.collect():
        if len(entries) > 1:
            raise StatementError(
                "session windows need a query over one stream",
                span_of(entry.node),
                "make the join a stream, CREATE STREAM s AS SELECT …, with a session window on s",
            )
        if entry.input.finite:
            raise StatementError(
                f"{entry.input.alias} is finite, and has no sessions", span_of(frame), "name a stream"
            )
        if child(frame, "kind") != "SESSION" and (
            frame.this is not None or child(frame, "slide") is not None
        ):
            raise StatementError(
                "a window that a tuple closes has no length of its own",
                span_of(frame),
                "write [CLOSE WHEN …]; [SESSION 1 HOUR CLOSE WHEN …] ends after an hour without a tuple, too",
            )
        gap = None if frame.this is None else duration_us(frame.this)
        if gap is not None and gap <= 0:
            raise StatementError(
                "a gap of 0 makes each tuple a session", span_of(frame.this), "make it longer than 0"
            )
        env.place = "a session"
        until_node, close_node = child(frame, "until"), child(frame, "close")
        until = None if until_node is None else bind(until_node, env)
        if until is not None and until.type.kind is not Kind.TIMESTAMP:
            raise StatementError(
                f"a session lasts until a time, and this is {until.type}",
                span_of(until_node),
                "name a timestamp column",
            )
        close = None if close_node is None else bind_condition(close_node, env)
        session = SessionWindow(gap, until, close)
    env.place = ""
    return session
