"""Rewrite of a UNION or SELECT DISTINCT with ORDER BY, LIMIT or EMIT.

The clauses ORDER BY, LIMIT and EMIT move to a new SELECT around the query:

a UNION ALL b ORDER BY x LIMIT 2            SELECT * FROM (a UNION ALL b) ORDER BY x LIMIT 2
a UNION DISTINCT b                          SELECT DISTINCT * FROM (a UNION ALL b)
SELECT DISTINCT k FROM s ORDER BY k LIMIT 2    SELECT * FROM (SELECT DISTINCT k FROM s) ORDER BY 1 LIMIT 2
"""

from __future__ import annotations

from sqlglot import exp

from slicemill.binder.from_clause import from_entries
from slicemill.sql import nodes
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import at, child, span_of

ENDS = ("order", "limit", "emit")


def wrap_union(union: exp.Expression) -> exp.Select | None:
    """Wrap a UNION in a SELECT that has the UNION's DISTINCT, ORDER BY, LIMIT and EMIT.

    Return None without these clauses. EMIT EARLY, LATE and ON WINDOW CLOSE apply to the windows of each
    branch, and move to the branches.
    """
    if not isinstance(union, exp.Union) or not any(child(union, key) for key in ("distinct", *ENDS)):
        return None
    union = union.copy()
    plain = _without_ends(union)
    plain.set("distinct", False)
    emit = child(union, "emit")
    if emit is not None and child(emit, "kind") in ("EARLY", "LATE", "ON WINDOW CLOSE"):
        union.set("emit", None)
        for branch in branches_of(plain):
            if child(branch, "emit") is None:
                branch.set("emit", emit.copy())
    made = _wrap_query(plain, "union")
    if child(union, "distinct"):
        made.set("distinct", exp.Distinct())
        if child(union, "order") is not None:
            made = _wrap_query(made, "distinct")
    return _with_ends(made, union)


def wrap_distinct(select: exp.Select) -> exp.Select | None:
    """Wrap SELECT DISTINCT … LIMIT in a SELECT, so that LIMIT counts distinct rows.

    Return None for all other SELECTs.
    """
    if child(select, "distinct") is None or child(select, "limit") is None or has_windows(select):
        return None
    ordered = select.copy()
    order_by_items(ordered, select)
    for key in child(ordered, "order").expressions if child(ordered, "order") is not None else ():
        if not _is_selected(key.this, select):
            raise StatementError(
                "the rows of SELECT DISTINCT have only what is selected to be ordered by",
                span_of(key.this),
                "select it too, or use GROUP BY",
            )
    return _with_ends(_wrap_query(_without_ends(select), "distinct"), ordered)


def branches_of(node: exp.Expression) -> list[exp.Expression]:
    """Return the branches of nested plain UNION ALLs as a flat list."""
    if isinstance(node, exp.Subquery) and child(node, "with_") is None:
        return branches_of(node.this)
    if isinstance(node, exp.Union) and not any(child(node, key) for key in ("with_", "distinct", *ENDS)):
        return [*branches_of(node.this), *branches_of(node.expression)]
    return [node]


def has_windows(select: exp.Select) -> bool:
    """Return True if results are ordered and emitted window by window."""
    if child(select, "window") is not None:
        return True
    return any(
        child(entry, "frame") is not None or isinstance(entry.this, nodes.WindowFunction)
        for entry, _ in from_entries(select)
    )


def order_by_items(query: exp.Expression, select: exp.Select) -> None:
    """Replace sort keys that are SELECT items by their positions in the select list."""
    order = child(query, "order")
    written = [_text(item.this if isinstance(item, exp.Alias) else item) for item in select.expressions]
    for ordered in order.expressions if order is not None else ():
        text = _text(ordered.this)
        if text in written and not isinstance(ordered.this, exp.Literal):
            place = exp.Literal.number(written.index(text) + 1)
            ordered.set("this", at(place, span_of(ordered.this)))


def _is_selected(key: exp.Expression, select: exp.Select) -> bool:
    """Return True if the select list contains the columns of a sort key.

    The sort key is a position, or consists of columns in the select list.
    """
    if isinstance(key, exp.Literal):
        return True
    names = {item.alias_or_name.lower() for item in select.expressions}
    stars = any(isinstance(item, exp.Star) or item.find(exp.Star) for item in select.expressions)
    return all(column.name.lower() in names or stars for column in key.find_all(exp.Column))


def _wrap_query(query: exp.Expression, name: str) -> exp.Select:
    place = span_of(query)
    made = exp.Select(expressions=[at(exp.Star(), place)])
    alias = at(exp.Identifier(this=name, quoted=True), place)
    made.set("entries", [at(nodes.StreamInput(this=query, alias=alias), place)])
    return at(made, place)


def _without_ends(query: exp.Expression) -> exp.Expression:
    plain = query.copy()
    for key in ENDS:
        plain.set(key, None)
    return plain


def _with_ends(made: exp.Select, query: exp.Expression) -> exp.Select:
    for key in ENDS:
        clause = child(query, key)
        made.set(key, clause.copy() if clause is not None else None)
    return made


def _text(node: exp.Expression) -> str:
    return to_esl(node).lower()
