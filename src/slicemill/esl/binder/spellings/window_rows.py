"""Rewrite window functions whose rows are selected.

Each row gets the bounds of its windows.

    TUMBLE    bounds of the one window
    HOP       one row for each window that contains the tuple: a UNION of size / slide SELECTs
    CUMULATE  one row for each window that ends after the tuple, likewise

A join of two window functions on equal bounds becomes a join with windows of that size. The bounds stay join
keys, which separate the windows.
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.esl.binder import durations
from slicemill.esl.binder.context import Context
from slicemill.esl.binder.inputs import from_entries
from slicemill.esl.binder.spellings.parsed import parsed_query
from slicemill.esl.binder.spellings.time_columns import check_timestamp
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.dialect import to_esl
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of

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
        entry.set("this", parsed_query(_rows(function), span_of(function)))


def window_function_of(entry: nodes.StreamInput) -> nodes.WindowFunction | None:
    """Return the window function of an entry, if any.

    It may be in a plain sub-query.
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
            first, second = (_alias(entry) for entry, _ in functions[:2])
            raise Mistake(
                "windows are joined where they are the same",
                span_of(functions[0][1]),
                f"add {first}.{bound} = {second}.{bound} to the condition",
            )
    for entry, function in functions:
        if child(entry, "frame") is None:
            frame = nodes.FrameClause(kind="RANGE", this=_size(function).copy())
            frame.meta["span"] = span_of(function)
            entry.set("frame", frame)


def _alias(entry: nodes.StreamInput) -> str:
    alias = child(entry, "alias")
    function = window_function_of(entry)
    assert function is not None
    return str(alias.name if alias is not None else function.this.name)


def _size(function: nodes.WindowFunction) -> nodes.Duration:
    found: nodes.Duration | None = child(function, "size")
    if found is None:
        raise Mistake(
            "when a session ends is not known of a single tuple",
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
        raise Mistake(
            f"the rows of {kind} are in a whole number of windows",
            span_of(step_node),
            "let the size be a multiple of the slide",
        )
    if size // step > _MOST_WINDOWS:
        raise Mistake(
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
