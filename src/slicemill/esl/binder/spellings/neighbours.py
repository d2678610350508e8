"""Rewrite lead(): delay rows until the following row has arrived.

`lead(x, k)` is known when the k-th following row arrives. So the query emits a row then, with the timestamp
of that following row. A row without a following row is never emitted. In plain ESL, all other columns are
read k rows back:

    rows of a partition     1    2    3    4
    SELECT x, lead(x) …          1,2  2,3  3,4
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.esl.binder import queries
from slicemill.esl.binder.context import Context
from slicemill.esl.binder.inputs import from_entries
from slicemill.esl.binder.spellings.calls import is_builtin, offset_of
from slicemill.esl.binder.spellings.clauses import changed, column
from slicemill.esl.binder.spellings.parsed import parsed_query
from slicemill.esl.binder.spellings.time_columns import check_timestamp
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.dialect import to_esl
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of

_ROWS = "_rows"


def followed(select: exp.Select, context: Context) -> exp.Expression | None:
    """Return the query that delays rows, or None without lead()."""
    leads = [
        over
        for item in select.expressions
        for over in item.find_all(nodes.Over)
        if is_builtin(over.this, "lead", context)
    ]
    if not leads:
        return None
    _check(select, leads, context)
    span = span_of(leads[0])
    (entry, _) = from_entries(select)[0]
    alias = child(entry, "alias") or entry.this
    most = max(offset_of(over.this) for over in leads)
    partition = child(leads[0], "partition_by") or []
    by = f"PARTITION BY {', '.join(map(to_esl, partition))} " if partition else ""

    # Other calls with OVER are computed in the inner query, when their rows arrive.
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

    items = [changed(item, beside) for item in select.expressions]
    inner.meta["span"] = span_of(select)
    names = [c.name for c in queries.bind_query(inner.copy(), context).schema]
    waited = [f'first("{name}") OVER ({by}ROWS {most} PRECEDING) AS "{name}"' for name in names]
    shown: dict[str, str] = {}

    def led(node: exp.Expression) -> exp.Expression | None:
        if not isinstance(node, nodes.Over):
            return None
        back = most - offset_of(node.this)
        text = f"first({to_esl(node.this.expressions[0])}) OVER ({by}ROWS {back} PRECEDING)"
        return column(shown.setdefault(text, f"_lead_{len(shown)}"))

    outer = [changed(item, led) for item in items]
    # A star expands to the columns of the input, without the computed columns of the inner query.
    stars = ", ".join(f'"{name}"' for name in names if name not in own.values())
    listed = ", ".join(stars if isinstance(item, exp.Star) else to_esl(item) for item in outer)
    leading = [f'{text} AS "{name}"' for text, name in shown.items()]
    counted = f'count(*) OVER ({by}ROWS {most} PRECEDING) AS "{_ROWS}"'
    middle = f'SELECT {", ".join([*waited, *leading, counted])} FROM ({to_esl(inner)}) AS "{alias.name}"'
    text = f'SELECT {listed} FROM ({middle}) AS "{alias.name}" WHERE "{_ROWS}" > {most}'
    return parsed_query(text, span)


def _check(select: exp.Select, leads: list[nodes.Over], context: Context) -> None:
    entries = from_entries(select)
    if len(entries) > 1 or child(select, "group") is not None:
        raise Mistake(
            "lead follows the rows of one stream",
            span_of(leads[0]),
            "make a stream of this query first: CREATE STREAM s AS SELECT …, and SELECT lead(…) FROM s",
        )
    partitions = {", ".join(map(to_esl, child(over, "partition_by") or [])) for over in leads}
    if len(partitions) > 1:
        raise Mistake(
            "a row waits in one partition", span_of(leads[1]), "give all calls of lead the same PARTITION BY"
        )
    for over in leads:
        call, order = over.this, child(over, "order")
        if child(over, "frame") is not None:
            raise Mistake(
                "lead counts rows itself", span_of(over), "leave the frame out; lead(x, 2) is two on"
            )
        if len(call.expressions) > 2:
            raise Mistake(
                "a row answers when the one that lead asks for has come, so no default is needed",
                span_of(call),
                "leave the third argument out",
            )
        stream = entries[0][0].this
        if isinstance(order, exp.Column) and isinstance(stream, exp.Identifier):
            check_timestamp(order, stream, context)
