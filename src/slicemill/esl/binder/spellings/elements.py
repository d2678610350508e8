"""Rewrite `SELECT explode(l) AS x FROM s` to `SELECT x FROM s, UNNEST(l) AS x`."""

from __future__ import annotations

from sqlglot import exp

from slicemill.esl.binder.calls import is_aggregate
from slicemill.esl.binder.context import Context
from slicemill.esl.binder.inputs import from_entries
from slicemill.esl.binder.spellings.calls import ELEMENTS
from slicemill.esl.binder.spellings.clauses import column
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import at, child, span_of


def exploded(select: exp.Select, context: Context) -> None:
    """Move the list of explode() from the select list to FROM."""
    found = [place for place, item in enumerate(select.expressions) if _is_call(item, context)]
    if not found:
        return
    items = list(select.expressions)
    place, *others = found
    item = items[place]
    call = item.this if isinstance(item, exp.Alias) else item
    if others or len(call.expressions) != 1:
        raise Mistake(
            "one list is taken apart in a select list",
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
        # A star expands to the columns of the written FROM entries only.
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
