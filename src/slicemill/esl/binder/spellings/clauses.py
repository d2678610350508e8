"""Find and replace expressions in the clauses of a SELECT."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from slicemill.esl.syntax.nodes import child, span_of


def replaced(select: exp.Select, change: Callable[[exp.Expression], exp.Expression | None]) -> None:
    """Replace expressions in all clauses but FROM.

    `change` returns None to keep a node. The outermost match is replaced. Windows and sub-queries of FROM are
    not searched.
    """
    select.set("expressions", [changed(item, change) for item in select.expressions])
    for key in ("where", "having", "qualify"):
        clause = child(select, key)
        if clause is not None:
            clause.set("this", changed(clause.this, change))
    for key in ("group", "order"):
        clause = child(select, key)
        if clause is not None:
            clause.set("expressions", [changed(part, change) for part in clause.expressions])


def changed(
    node: exp.Expression, change: Callable[[exp.Expression], exp.Expression | None]
) -> exp.Expression:
    found = change(node)
    if found is not None:
        if "span" not in found.meta:
            found.meta["span"] = span_of(node)
        return found
    for key, value in list(node.args.items()):
        if isinstance(value, exp.Expression):
            node.set(key, changed(value, change))
        elif isinstance(value, list):
            node.set(key, [changed(v, change) if isinstance(v, exp.Expression) else v for v in value])
    return node


def calls(select: exp.Select, *names: str) -> Iterator[exp.Anonymous]:
    """Yield calls by name in select list, WHERE, GROUP BY and HAVING."""
    places = [*select.expressions, child(select, "where"), child(select, "group"), child(select, "having")]
    for place in places:
        for call in place.find_all(exp.Anonymous) if place is not None else ():
            if call.name.lower() in names:
                yield call


def bare_call(name: str, *arguments: exp.Expression) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def column(name: str, table: str = "") -> exp.Column:
    identifier = exp.Identifier(this=name, quoted=True)
    return exp.Column(this=identifier, table=exp.Identifier(this=table, quoted=True) if table else None)
