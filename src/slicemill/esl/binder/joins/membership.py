"""`EXISTS`, `NOT EXISTS`, `IN` and `NOT IN` over a stream: SEMI and ANTI joins.

    FROM a [RANGE 1 MINUTE]                                FROM a [RANGE 1 MINUTE]
    WHERE EXISTS (SELECT 1 FROM b [RANGE 5 SECONDS]   →    SEMI JOIN b [RANGE 5 SECONDS] ON b.k = a.k
                  WHERE b.k = a.k)

Without a window of its own, the stream outside is judged at once: by what the other's window holds then.
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.esl.binder.context import Context, is_finite, schema_of
from slicemill.esl.binder.inputs import from_entries
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.grammar import windows
from slicemill.esl.syntax.nodes import at, child, span_of
from slicemill.esl.types.schema import Schema

_PLAIN = "write SELECT column FROM stream [RANGE …] WHERE … inside; make a stream of what is more"


def as_joins(node: exp.Select, context: Context) -> exp.Select:
    """The SELECT with the conditions that ask a stream as joins; itself where it has none."""
    where = child(node, "where")
    if where is None or not any(_reads_stream(q, context) for q in where.find_all(exp.Select)):
        return node
    changed = node.copy()
    where = child(changed, "where")
    kept: list[exp.Expression] = []
    entries = list(child(changed, "entries"))
    taken = {_alias(entry).lower() for entry, _ in from_entries(changed)}
    outside = [
        (_alias(entry), schema_of(context.relation(entry.this)))
        for entry, _ in from_entries(changed)
        if isinstance(entry.this, exp.Identifier)
    ]
    for part in _conjuncts(where.this):
        asked = _asked(part, context)
        if asked is None:
            kept.append(part)
            continue
        query, negated, value = asked
        if value is not None:
            value = _of_outside(value, outside)
        entries.append(_join(part, query, taken, context, negated=negated, value=value))
    first = entries[0].this if isinstance(entries[0], nodes.JoinInput) else entries[0]
    asks = len(entries) > len(child(changed, "entries"))
    if asks and child(first, "frame") is None and child(changed, "window") is None:
        first.set("frame", windows.now(span_of(first)))
    changed.set("entries", entries)
    changed.set("where", exp.Where(this=_all(kept)) if kept else None)
    return changed


def _conjuncts(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Paren):
        inner = _conjuncts(node.this)
        return inner if len(inner) > 1 else [node]
    if isinstance(node, exp.And):
        return [*_conjuncts(node.this), *_conjuncts(node.expression)]
    return [node]


def _all(parts: list[exp.Expression]) -> exp.Expression:
    whole = parts[0]
    for part in parts[1:]:
        whole = at(exp.And(this=whole, expression=part), span_of(whole))
    return whole


def _asked(part: exp.Expression, context: Context) -> tuple[exp.Select, bool, exp.Expression | None] | None:
    """The query over a stream that a condition asks, whether it says NOT, and the value of an IN."""
    inner, negated = part, False
    while isinstance(inner, (exp.Not, exp.Paren)):
        negated ^= isinstance(inner, exp.Not)
        inner = inner.this
    value: exp.Expression | None = None
    query: exp.Expression | None = None
    if isinstance(inner, exp.Exists):
        query = inner.this
    elif isinstance(inner, exp.In) and child(inner, "query") is not None:
        query, value = child(inner, "query"), inner.this
    while isinstance(query, exp.Subquery):
        query = query.this
    if isinstance(query, exp.Select) and _reads_stream(query, context):
        return query, negated, value
    if any(_reads_stream(q, context) for q in part.find_all(exp.Select)):
        raise Mistake(
            "a query over a stream stands in WHERE alone, or beside others with AND",
            span_of(part),
            "write WHERE EXISTS (…) AND …, or make two queries of an OR",
        )
    return None


def _reads_stream(query: exp.Select, context: Context) -> bool:
    for entry, _ in from_entries(query):
        if isinstance(entry.this, exp.Identifier):
            if not is_finite(context.relation(entry.this)):
                return True
        elif any(_reads_stream(inner, context) for inner in entry.this.find_all(exp.Select)):
            return True
    return False


def _join(
    part: exp.Expression,
    query: exp.Select,
    taken: set[str],
    context: Context,
    *,
    negated: bool,
    value: exp.Expression | None,
) -> nodes.JoinInput:
    entries = from_entries(query)
    grouped = any(child(query, key) is not None for key in ("group", "having", "limit", "with_"))
    (entry, join), several = entries[0], len(entries) > 1
    if several or join is not None or grouped or not isinstance(entry.this, exp.Identifier):
        raise Mistake("a query in WHERE asks one stream, row by row", span_of(query), _PLAIN)
    if child(query, "window") is not None and child(entry, "frame") is None:
        entry.set("frame", child(query, "window"))
    alias = _alias(entry)
    if alias.lower() in taken:
        raise Mistake(f"{alias} stands in FROM outside, too", span_of(entry), "give it an alias: AS other")
    taken.add(alias.lower())
    relation = context.relation(entry.this)
    inner = child(query, "where")
    parts = [inner.this] if inner is not None else []
    if value is not None:
        parts.append(_equals(part, query, value, negated=negated))
    condition = _all(parts) if parts else at(exp.Boolean(this=True), span_of(query))
    if inner is not None:
        _qualify(inner, alias, relation.schema)
    side = "ANTI" if negated else "SEMI"
    return at(nodes.JoinInput(this=entry, side=side, on=condition), span_of(part))


def _equals(
    part: exp.Expression, query: exp.Select, value: exp.Expression, *, negated: bool
) -> exp.Expression:
    """NOT IN is not true where a NULL could be the value that is looked for."""
    items = query.expressions
    if len(items) != 1 or isinstance(items[0], exp.Star):
        raise Mistake("IN compares with one column", span_of(query), _PLAIN)
    entry, _ = from_entries(query)[0]
    item = items[0].this if isinstance(items[0], exp.Alias) else items[0]
    for column in [item, *item.find_all(exp.Column)]:
        if isinstance(column, exp.Column) and not column.table:
            column.set("table", exp.Identifier(this=_alias(entry), quoted=True))
    place = span_of(part)
    same: exp.Expression = at(exp.EQ(this=value.copy(), expression=item.copy()), place)
    if not negated:
        return same
    for one in (value, item):
        unknown = at(exp.Is(this=one.copy(), expression=exp.Null()), place)
        same = at(exp.Or(this=same, expression=unknown), place)
    return at(exp.Paren(this=same), place)


def _qualify(where: exp.Expression, alias: str, schema: Schema) -> None:
    """Names without a relation are those of the query inside, where it has them."""
    for column in where.find_all(exp.Column):
        if not column.table and schema.find(column.name) is not None:
            column.set("table", exp.Identifier(this=alias, quoted=True))


def _of_outside(value: exp.Expression, outside: list[tuple[str, Schema]]) -> exp.Expression:
    """What is looked for is of the query outside, also if the other has such a column."""
    for column in [value, *value.find_all(exp.Column)]:
        if isinstance(column, exp.Column) and not column.table:
            owners = [alias for alias, schema in outside if schema.find(column.name) is not None]
            if len(owners) == 1:
                column.set("table", exp.Identifier(this=owners[0], quoted=True))
    return value


def _alias(entry: nodes.StreamInput) -> str:
    alias = child(entry, "alias")
    if alias is not None:
        return str(alias.name)
    return str(entry.this.name) if isinstance(entry.this, exp.Identifier) else ""
