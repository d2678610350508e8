"""Rewrite windows in GROUP BY to windows of FROM.

The forms are `FROM TUMBLE(TABLE s, …) GROUP BY window_start` and `GROUP BY window(ts, '1 minute')`.
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.esl.binder.context import Context
from slicemill.esl.binder.inputs import from_entries
from slicemill.esl.binder.spellings.clauses import bare_call, replaced
from slicemill.esl.binder.spellings.time_columns import check_timestamp
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.dialect import to_esl
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.grammar.windows import duration
from slicemill.esl.syntax.nodes import at, child, span_of
from slicemill.esl.syntax.tokens import tokenize

_START, _END, _TIME = "window_start", "window_end", "window_time"
BOUND_COLUMNS = (_START, _END, _TIME)
# Calls that return a window bound, for use with GROUP BY tumble(…) and the like.
BOUNDS = {
    f"{kind}_{word}": bound
    for kind in ("tumble", "hop", "session", "cumulate")
    for word, bound in (("start", _START), ("end", _END), ("rowtime", _TIME))
} | {_TIME: _TIME}
# Window functions in GROUP BY, with their length arguments in order.
_GROUPED: dict[str, tuple[str, ...]] = {
    "window": ("size", "slide"),
    "tumble": ("size",),
    "hop": ("slide", "size"),
    "cumulate": ("step", "size"),
    "session": ("gap",),
    "session_window": ("gap",),
}


def frames(select: exp.Select, context: Context) -> None:
    """Add the window of GROUP BY to the stream in FROM."""
    _from_functions(select, context)
    _from_groups(select, context)


def _from_functions(select: exp.Select, context: Context) -> None:
    """Turn window functions whose bounds are grouped into FROM windows."""
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
    """Check that a session's PARTITION BY and GROUP BY keys agree."""
    partition = {key.name.lower() for key in child(function, "partition_by") or ()}
    rest = [part for part in group.expressions if not _bound_column(part, _alias(entry))]
    keys = {part.name.lower() if isinstance(part, exp.Column) else to_esl(part) for part in rest}
    if keys != partition:
        names = ", ".join(to_esl(part) for part in rest)
        hint = f"write SESSION(TABLE {function.this.name} PARTITION BY ({names}), …)" if names else ""
        raise Mistake(
            "a session is one group's, so PARTITION BY and GROUP BY name the same keys",
            span_of(function),
            hint or "leave PARTITION BY out, or add its keys to GROUP BY",
        )


def _from_groups(select: exp.Select, context: Context) -> None:
    """Rewrite `GROUP BY window(ts, …)`, `tumble(ts, …)`, `session_window(ts, …)` and the like."""
    group = child(select, "group")
    parts = group.expressions if group is not None else []
    for part in parts:
        inside = [key for key in part.find_all(exp.Anonymous) if key is not part and _is_window(key)]
        if inside:
            raise Mistake(
                "windows have no total over all time",
                span_of(inside[0]),
                f"leave it out of the sets of keys: GROUP BY {to_esl(inside[0])}, ROLLUP (k)",
            )
    found = [part for part in parts if _is_window(part)]
    if not found:
        return
    call, *others = found
    if others:
        raise Mistake("a query is grouped by one window", span_of(others[0]), "make two queries")
    entries = from_entries(select)
    streams = [entry for entry, _ in entries if isinstance(entry.this, exp.Identifier)]
    if len(entries) > 1 or not streams or child(streams[0], "frame") is not None:
        raise Mistake(
            f"{call.name} is the window of one stream",
            span_of(call),
            "give each stream of FROM its window in brackets: s [RANGE 10 SECONDS SLIDE 10 SECONDS]",
        )
    check_timestamp(call.expressions[0], streams[0].this, context)
    names, kind = _GROUPED[call.name.lower()], call.name.lower()
    written = call.expressions[1:]
    if len(written) > len(names):
        raise Mistake(
            "windows begin at multiples of their slide", span_of(written[len(names)]), "leave the offset out"
        )
    needed = 1 if kind == "window" else len(names)
    if len(written) < needed:
        raise Mistake(
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
    """Return the bound that `window.start`, `session_window.end` or `window(ts, …).start` reads, or ''."""
    if isinstance(node, exp.Dot) and node.this == call:
        return {"start": _START, "end": _END}.get(node.expression.name.lower(), "")
    if isinstance(node, exp.Column) and node.table.lower() in ("window", "session_window"):
        return {"start": _START, "end": _END}.get(node.name.lower(), "")
    if isinstance(node, exp.Column) and node.name.lower() in ("window", "session_window") and not node.table:
        raise Mistake("a window has a start and an end", span_of(node), f"write {node.name}.start")
    return ""


def _length(node: exp.Expression) -> nodes.Duration:
    """Return a duration written as `'10 seconds'` (Spark) or as an INTERVAL."""
    if isinstance(node, exp.Interval):
        found: nodes.Duration = node.this
        return found
    if isinstance(node, exp.Literal) and node.is_string:
        text = f"'{node.name}'"
        try:
            return at(duration(Cursor(tokenize(text), text)), span_of(node))
        except Mistake as mistake:
            raise Mistake(mistake.diagnostic.message, span_of(node), "write it as in '10 seconds'") from None
    raise Mistake("this is no length of time", span_of(node), "write INTERVAL '10' SECONDS, or '10 seconds'")


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
    """Replace window bounds by calls, and remove them from GROUP BY.

    Each window is a group anyway.
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

    replaced(select, read)


def _bound_call(node: exp.Expression) -> str:
    return BOUNDS.get(node.name.lower(), "") if isinstance(node, exp.Anonymous) else ""


def bound_expression(bound: str) -> exp.Expression:
    """Return the ESL call of a window bound.

    The window_time is the last millisecond of the window.
    """
    if bound != _TIME:
        return bare_call(bound)
    part = nodes.DurationPart(this=exp.Literal.number(1), unit=exp.Var(this="MILLISECOND"))
    return exp.Sub(this=bare_call(_END), expression=exp.Interval(this=nodes.Duration(expressions=[part])))
