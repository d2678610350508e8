"""Rewrite of windows in GROUP BY to windows in FROM, and of lead().

The forms are `FROM TUMBLE(TABLE s, …) GROUP BY window_start` and `GROUP BY window(ts, '1 minute')`.
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.binder import windows as durations
from slicemill.binder.context import Context
from slicemill.binder.dialects.clauses import (
    bare_call,
    check_timestamp,
    column,
    parse_query_at,
    replace_in_clauses,
    replace_outermost,
)
from slicemill.binder.dialects.functions import is_builtin, offset_of
from slicemill.binder.from_clause import from_entries
from slicemill.sql import nodes
from slicemill.sql.cursor import Cursor
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.grammar.windows import duration
from slicemill.sql.lexer import tokenize
from slicemill.sql.nodes import at, child, span_of

_START, _END, _TIME = "window_start", "window_end", "window_time"
BOUND_COLUMNS = (_START, _END, _TIME)
# Functions that return a window bound, for GROUP BY tumble(…) and similar functions.
BOUNDS = {
    f"{kind}_{word}": bound
    for kind in ("tumble", "hop", "session", "cumulate")
    for word, bound in (("start", _START), ("end", _END), ("rowtime", _TIME))
} | {_TIME: _TIME}
# Names of the length arguments of each window function in GROUP BY, in order.
_GROUPED: dict[str, tuple[str, ...]] = {
    "window": ("size", "slide"),
    "tumble": ("size",),
    "hop": ("slide", "size"),
    "cumulate": ("step", "size"),
    "session": ("gap",),
    "session_window": ("gap",),
}


def add_group_windows(select: exp.Select, context: Context) -> None:
    """Add the window of GROUP BY to the stream in FROM."""
    _from_functions(select, context)
    _from_groups(select, context)


def _from_functions(select: exp.Select, context: Context) -> None:
    """Replace window functions in FROM by windows.

    Only window functions whose bounds are in GROUP BY are replaced.
    """
    group = child(select, "group")
    for entry, _ in from_entries(select):
        function = entry.this
        if not isinstance(function, nodes.WindowFunction) or not _groups_by_bounds(group, entry):
            continue
        check_timestamp(child(function, "column"), function.this, context)
        lengths = {name: child(function, name) for name in ("size", "slide", "step", "gap")}
        alias = _alias(entry)
        if child(entry, "alias") is None:
            entry.set("alias", exp.Identifier(this=alias, quoted=True))
        entry.set("this", function.this)
        entry.set("frame", _frame(child(function, "kind").lower(), lengths, span_of(function)))
        if child(function, "kind") == "SESSION":
            _check_session_keys(function, group, entry)
        _read_bounds(select, lambda node, alias=alias: _bound_column(node, alias))


def _groups_by_bounds(group: exp.Group | None, entry: nodes.StreamInput) -> bool:
    parts = group.expressions if group is not None else []
    return any(_bound_column(part, _alias(entry)) for part in parts)


def _alias(entry: nodes.StreamInput) -> str:
    alias = child(entry, "alias")
    name = alias if alias is not None else entry.this.this
    return str(name.name)


def _bound_column(node: exp.Expression, alias: str) -> str:
    if isinstance(node, exp.Column) and node.table.lower() in ("", alias.lower()):
        return node.name.lower() if node.name.lower() in BOUND_COLUMNS else ""
    return ""


def _check_session_keys(function: nodes.WindowFunction, group: exp.Group, entry: nodes.StreamInput) -> None:
    """Check that the keys in PARTITION BY of a session are the keys in GROUP BY."""
    partition = {key.name.lower() for key in child(function, "partition_by") or ()}
    rest = [part for part in group.expressions if not _bound_column(part, _alias(entry))]
    keys = {part.name.lower() if isinstance(part, exp.Column) else to_esl(part) for part in rest}
    if keys != partition:
        names = ", ".join(to_esl(part) for part in rest)
        hint = f"write SESSION(TABLE {function.this.name} PARTITION BY ({names}), …)" if names else ""
        raise StatementError(
            "a session is one group's, so PARTITION BY and GROUP BY name the same keys",
            span_of(function),
            hint or "leave PARTITION BY out, or add its keys to GROUP BY",
        )


def _from_groups(select: exp.Select, context: Context) -> None:
    """Rewrite `GROUP BY window(ts, …)`, `tumble(ts, …)`, `session_window(ts, …)`."""
    group = child(select, "group")
    parts = group.expressions if group is not None else []
    for part in parts:
        inside = [key for key in part.find_all(exp.Anonymous) if key is not part and _is_window(key)]
        if inside:
            raise StatementError(
                "a grouping set without the window has no end",
                span_of(inside[0]),
                f"leave it out of the sets of keys: GROUP BY {to_esl(inside[0])}, ROLLUP (k)",
            )
    found = [part for part in parts if _is_window(part)]
    if not found:
        return
    call, *others = found
    if others:
        raise StatementError("a query is grouped by one window", span_of(others[0]), "make two queries")
    entries = from_entries(select)
    streams = [entry for entry, _ in entries if isinstance(entry.this, exp.Identifier)]
    if len(entries) > 1 or not streams or child(streams[0], "frame") is not None:
        raise StatementError(
            f"{call.name} is the window of one stream",
            span_of(call),
            "give each stream of FROM its window in brackets: s [RANGE 10 SECONDS SLIDE 10 SECONDS]",
        )
    check_timestamp(call.expressions[0], streams[0].this, context)
    names, kind = _GROUPED[call.name.lower()], call.name.lower()
    written = call.expressions[1:]
    if len(written) > len(names):
        raise StatementError(
            "windows begin at multiples of their slide", span_of(written[len(names)]), "leave the offset out"
        )
    needed = 1 if kind == "window" else len(names)
    if len(written) < needed:
        raise StatementError(
            f"{call.name} lacks its {names[len(written)]}",
            span_of(call),
            f"as in {call.name}({call.expressions[0].name}, {', '.join(['INTERVAL 10 SECONDS'] * needed)})",
        )
    lengths = {name: _length(node) for name, node in zip(names, written, strict=False)}
    if kind == "window":
        kind = "hop" if "slide" in lengths else "tumble"
    kind = "session" if kind == "session_window" else kind
    streams[0].set("frame", _frame(kind, lengths, span_of(call)))
    rest = [part for part in parts if part is not call]
    group.set("expressions", rest)
    _read_bounds(select, lambda node: _spark_field(node, call) or _bound_column(node, _own_alias(streams[0])))


def _own_alias(entry: nodes.StreamInput) -> str:
    alias = child(entry, "alias")
    return str(alias.name if alias is not None else entry.this.name)


def _is_window(part: exp.Expression) -> bool:
    return (
        isinstance(part, exp.Anonymous)
        and part.name.lower() in _GROUPED
        and bool(part.expressions)
        and isinstance(part.expressions[0], exp.Column)
    )


def _spark_field(node: exp.Expression, call: exp.Anonymous) -> str:
    """Return the window bound that an expression in Spark's syntax denotes, or ''.

    Examples are `window.start`, `session_window.end` and `window(ts, …).start`.
    """
    if isinstance(node, exp.Dot) and node.this == call:
        return {"start": _START, "end": _END}.get(node.expression.name.lower(), "")
    if isinstance(node, exp.Column) and node.table.lower() in ("window", "session_window"):
        return {"start": _START, "end": _END}.get(node.name.lower(), "")
    if isinstance(node, exp.Column) and node.name.lower() in ("window", "session_window") and not node.table:
        raise StatementError("a window has a start and an end", span_of(node), f"write {node.name}.start")
    return ""


def _length(node: exp.Expression) -> nodes.Duration:
    """Parse a duration such as `'10 seconds'` (Spark), or an INTERVAL."""
    if isinstance(node, exp.Interval):
        found: nodes.Duration = node.this
        return found
    if isinstance(node, exp.Literal) and node.is_string:
        text = f"'{node.name}'"
        try:
            return at(duration(Cursor(tokenize(text), text)), span_of(node))
        except StatementError as mistake:
            raise StatementError(
                mistake.diagnostic.message, span_of(node), "write it as in '10 seconds'"
            ) from None
    raise StatementError(
        "this is not a duration", span_of(node), "write INTERVAL '10' SECONDS, or '10 seconds'"
    )


def _frame(kind: str, lengths: dict[str, nodes.Duration], span: object) -> nodes.FrameClause:
    size, gap = lengths.get("size"), lengths.get("gap")
    slide = {"tumble": size, "hop": lengths.get("slide"), "cumulate": lengths.get("step")}.get(kind)
    node = nodes.FrameClause(kind="SESSION" if kind == "session" else "RANGE", this=gap if gap else size)
    if slide is not None:
        node.set("slide", slide.copy())
    if kind == "cumulate":
        node.set("from_start", True)
    node.meta["span"] = span
    return node


def _read_bounds(select: exp.Select, bound_of: object) -> None:
    """Replace window bounds such as `window.start` by calls.

    Window bounds are removed from GROUP BY, because each window is a group in any case.
    """
    assert callable(bound_of)
    group = child(select, "group")
    rest = [part for part in group.expressions if not bound_of(part) and not _bound_call(part)]
    if rest:
        group.set("expressions", rest)
    else:
        select.set("group", None)

    def read(node: exp.Expression) -> exp.Expression | None:
        bound = bound_of(node) or _bound_call(node)
        return bound_expression(bound) if bound else None

    replace_in_clauses(select, read)


def _bound_call(node: exp.Expression) -> str:
    return BOUNDS.get(node.name.lower(), "") if isinstance(node, exp.Anonymous) else ""


def bound_expression(bound: str) -> exp.Expression:
    """Return the expression for a window bound in plain ESL, the SQL of slicemill.

    `window_time` is the last millisecond of the window.
    """
    if bound != _TIME:
        return bare_call(bound)
    part = nodes.DurationPart(this=exp.Literal.number(1), unit=exp.Var(this="MILLISECOND"))
    return exp.Sub(this=bare_call(_END), expression=exp.Interval(this=nodes.Duration(expressions=[part])))


# Window functions without GROUP BY on their bounds
#
# Each row gets the bounds of its windows as columns.
#
#     TUMBLE    one row, with the bounds of the window that contains the tuple
#     HOP       one row for each window that contains the tuple: a UNION of size / slide SELECTs
#     CUMULATE  one row for each window that ends after the tuple: a UNION too
#
# A join of two window functions on equal bounds becomes a join with windows of the size of the functions'
# windows. The bounds remain join keys, which separate the windows.


_MOST_WINDOWS = 100


def rows_with_windows(select: exp.Select, context: Context) -> None:
    entries = [entry for entry, _ in from_entries(select)]
    functions = [(entry, found) for entry in entries if (found := window_function_of(entry)) is not None]
    if len(entries) > 1 and len(functions) > 1:
        _join_on_windows(select, functions)
    for entry in entries:
        if not isinstance(entry.this, nodes.WindowFunction):
            continue
        function = entry.this
        check_timestamp(child(function, "column"), function.this, context)
        if child(entry, "alias") is None:
            entry.set("alias", exp.Identifier(this=function.this.name, quoted=True))
        entry.set("this", parse_query_at(_rows(function), span_of(function)))


def window_function_of(entry: nodes.StreamInput) -> nodes.WindowFunction | None:
    """Return the window function of a FROM entry, or None.

    The window function may be inside a sub-query without GROUP BY.
    """
    this = entry.this
    if isinstance(this, exp.Select) and child(this, "group") is None and len(child(this, "entries")) == 1:
        this = from_entries(this)[0][0].this
    return this if isinstance(this, nodes.WindowFunction) else None


def _join_on_windows(
    select: exp.Select, functions: list[tuple[nodes.StreamInput, nodes.WindowFunction]]
) -> None:
    where = child(select, "where")
    conditions = [join.args["on"] for _, join in from_entries(select) if join is not None]
    conditions += [where.this] if where is not None else []
    equal = {
        (pair.this.name.lower(), pair.expression.name.lower())
        for condition in conditions
        for pair in condition.find_all(exp.EQ)
        if isinstance(pair.this, exp.Column) and isinstance(pair.expression, exp.Column)
    }
    for bound in ("window_start", "window_end"):
        if (bound, bound) not in equal:
            first, second = (_row_window_alias(entry) for entry, _ in functions[:2])
            raise StatementError(
                "window functions are joined on equal window bounds",
                span_of(functions[0][1]),
                f"add {first}.{bound} = {second}.{bound} to the condition",
            )
    for entry, function in functions:
        if child(entry, "frame") is None:
            frame = nodes.FrameClause(kind="RANGE", this=_size(function).copy())
            frame.meta["span"] = span_of(function)
            entry.set("frame", frame)


def _row_window_alias(entry: nodes.StreamInput) -> str:
    alias = child(entry, "alias")
    function = window_function_of(entry)
    assert function is not None
    return str(alias.name if alias is not None else function.this.name)


def _size(function: nodes.WindowFunction) -> nodes.Duration:
    found: nodes.Duration | None = child(function, "size")
    if found is None:
        raise StatementError(
            "the end of a session is not known when a tuple arrives",
            span_of(function),
            "group by it: GROUP BY window_start, window_end and the keys",
        )
    return found


def _rows(function: nodes.WindowFunction) -> str:
    size = durations.duration_us(_size(function))
    kind = child(function, "kind")
    step_node = child(function, "slide") or child(function, "step") or _size(function)
    step = durations.duration_us(step_node)
    if step <= 0 or size % step:
        raise StatementError(
            f"the rows of {kind} are in a whole number of windows",
            span_of(step_node),
            "let the size be a multiple of the slide",
        )
    if size // step > _MOST_WINDOWS:
        raise StatementError(
            f"a row would be in {size // step} windows", span_of(function), f"use {_MOST_WINDOWS} at most"
        )
    time = f"unix_micros({to_esl(child(function, 'column'))})"
    stream = to_esl(function.this)
    if kind == "CUMULATE":
        start = f"{time} - pmod({time}, {size})"
        return " UNION ALL ".join(
            f"{_select(start, f'{start} + {end}', stream)} WHERE pmod({time}, {size}) < {end}"
            for end in range(step, size + 1, step)
        )
    latest = f"{time} - pmod({time}, {step})"
    return " UNION ALL ".join(
        _select(f"{latest} - {before}", f"{latest} - {before} + {size}", stream)
        for before in range(size - step, -1, -step)
    )


def _select(start: str, end: str, stream: str) -> str:
    bounds = [(start, "window_start"), (end, "window_end"), (f"{end} - 1000", "window_time")]
    listed = ", ".join(f"timestamp_micros({value}) AS {name}" for value, name in bounds)
    return f"SELECT *, {listed} FROM {stream}"


# Rewrite of lead(), which delays rows until the following row has arrived
#
# The value of `lead(x, k)` for a row is known when the k-th following row arrives. The query then emits the
# row, with the timestamp of the k-th following row. A row without k following rows is never emitted. In the
# rewritten query, `lead(x, k)` is x of the current row, and all other columns are those of the k-th preceding
# row:
#
#     rows of a partition     1    2    3    4
#     SELECT x, lead(x) …          1,2  2,3  3,4


_ROWS = "_rows"


def rewrite_lead(select: exp.Select, context: Context) -> exp.Expression | None:
    """Rewrite a SELECT with lead() to a query that delays rows; return None without lead()."""
    leads = [
        over
        for item in select.expressions
        for over in item.find_all(nodes.Over)
        if is_builtin(over.this, "lead", context)
    ]
    if not leads:
        return None
    _check_lead(select, leads, context)
    span = span_of(leads[0])
    (entry, _) = from_entries(select)[0]
    alias = child(entry, "alias") or entry.this
    most = max(offset_of(over.this) for over in leads)
    partition = child(leads[0], "partition_by") or []
    by = f"PARTITION BY {', '.join(map(to_esl, partition))} " if partition else ""

    # Calls with OVER other than lead() are computed in the inner query when their rows arrive.
    inner = exp.Select(expressions=[exp.Star()])
    inner.set("entries", [entry.copy()])
    inner.set("where", child(select, "where"))
    own: dict[str, str] = {}

    def beside(node: exp.Expression) -> exp.Expression | None:
        if isinstance(node, nodes.Over) and not is_builtin(node.this, "lead", context):
            name = own.setdefault(to_esl(node), f"_over_{len(own)}")
            if len(own) > len(inner.expressions) - 1:
                aliased = exp.Alias(this=node.copy(), alias=exp.Identifier(this=name, quoted=True))
                inner.append("expressions", aliased)
            return column(name)
        return None

    items = [replace_outermost(item, beside) for item in select.expressions]
    inner.meta["span"] = span_of(select)
    from slicemill.binder.queries import bind_query  # imported here because `bind_query` rewrites windows

    names = [c.name for c in bind_query(inner.copy(), context).schema]
    waited = [f'first("{name}") OVER ({by}ROWS {most} PRECEDING) AS "{name}"' for name in names]
    shown: dict[str, str] = {}

    def led(node: exp.Expression) -> exp.Expression | None:
        if not isinstance(node, nodes.Over):
            return None
        back = most - offset_of(node.this)
        text = f"first({to_esl(node.this.expressions[0])}) OVER ({by}ROWS {back} PRECEDING)"
        return column(shown.setdefault(text, f"_lead_{len(shown)}"))

    outer = [replace_outermost(item, led) for item in items]
    # A star expands to the columns of the input, without the columns that the inner query computes.
    stars = ", ".join(f'"{name}"' for name in names if name not in own.values())
    listed = ", ".join(stars if isinstance(item, exp.Star) else to_esl(item) for item in outer)
    leading = [f'{text} AS "{name}"' for text, name in shown.items()]
    counted = f'count(*) OVER ({by}ROWS {most} PRECEDING) AS "{_ROWS}"'
    middle = f'SELECT {", ".join([*waited, *leading, counted])} FROM ({to_esl(inner)}) AS "{alias.name}"'
    text = f'SELECT {listed} FROM ({middle}) AS "{alias.name}" WHERE "{_ROWS}" > {most}'
    return parse_query_at(text, span)


def _check_lead(select: exp.Select, leads: list[nodes.Over], context: Context) -> None:
    entries = from_entries(select)
    if len(entries) > 1 or child(select, "group") is not None:
        raise StatementError(
            "lead follows the rows of one stream",
            span_of(leads[0]),
            "make a stream of this query first: CREATE STREAM s AS SELECT …, and SELECT lead(…) FROM s",
        )
    partitions = {", ".join(map(to_esl, child(over, "partition_by") or [])) for over in leads}
    if len(partitions) > 1:
        raise StatementError(
            "a row waits in one partition", span_of(leads[1]), "give all calls of lead the same PARTITION BY"
        )
    for over in leads:
        call, order = over.this, child(over, "order")
        if child(over, "frame") is not None:
            raise StatementError(
                "lead counts rows itself", span_of(over), "leave the frame out; lead(x, 2) is two on"
            )
        if len(call.expressions) > 2:
            raise StatementError(
                "lead() emits a row when the following row has arrived, so a default has no effect",
                span_of(call),
                "leave the third argument out",
            )
        stream = entries[0][0].this
        if isinstance(order, exp.Column) and isinstance(stream, exp.Identifier):
            check_timestamp(order, stream, context)
