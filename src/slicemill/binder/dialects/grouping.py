"""Rewrite of aliases and positions in GROUP BY, and of grouping sets.

GROUPING SETS, ROLLUP and CUBE become a UNION with a SELECT for each grouping set.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations, product

from sqlglot import exp

from slicemill.binder import queries
from slicemill.binder.calls import is_aggregate
from slicemill.binder.context import Context
from slicemill.binder.dialects.clauses import bare_call, parse_expression_at, replace_outermost
from slicemill.binder.dialects.set_operations import ENDS, has_windows, order_by_items
from slicemill.binder.from_clause import from_entries
from slicemill.errors import format_count
from slicemill.sql import nodes
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import at, child, span_of

_MOST_SETS = 64
_GROUPING = ("grouping", "grouping_id")


def resolve_group_names(select: exp.Select, context: Context) -> None:
    """Replace `GROUP BY 1` and `GROUP BY alias` by their expressions.

    A name in GROUP BY is an alias only if no input column has that name.
    """
    group = child(select, "group")
    if group is None:
        return
    items = select.expressions
    aliases: dict[str, exp.Expression] = {
        item.alias.lower(): item.this for item in items if isinstance(item, exp.Alias)
    }
    parts = [key for part in group.expressions for one in _sets(part) for key in one]
    wanted = [part for part in parts if isinstance(part, exp.Column) and not part.table]
    hidden = _input_columns(select, context) if any(p.name.lower() in aliases for p in wanted) else set()

    def meant(part: exp.Expression) -> exp.Expression:
        if isinstance(part, exp.Literal) and not part.is_string:
            place = int(part.name) if part.name.isdigit() else 0
            if not 1 <= place <= len(items):
                raise StatementError(
                    f"there is no column {part.name} in the select list",
                    span_of(part),
                    f"it has {format_count(len(items), 'column')}, counted from 1",
                )
            item = items[place - 1]
            if isinstance(item, exp.Star):
                raise StatementError("* is no single column", span_of(part), "name the columns to group by")
            named: exp.Expression = item.this if isinstance(item, exp.Alias) else item
            return at(named.copy(), span_of(part))
        if isinstance(part, exp.Column) and not part.table and part.name.lower() not in hidden:
            found = aliases.get(part.name.lower())
            if found is not None:
                return at(found.copy(), span_of(part))
        if _several(part) or isinstance(part, exp.Tuple):
            part.set("expressions", [meant(key) for key in part.expressions])
        return part

    group.set("expressions", [meant(part) for part in group.expressions])


def _input_columns(select: exp.Select, context: Context) -> set[str]:
    names: set[str] = set()
    for entry, _ in from_entries(select):
        this = entry.this.this if isinstance(entry.this, nodes.WindowFunction) else entry.this
        if isinstance(this, nodes.TableFunctionCall | nodes.ListElements):
            continue  # GROUP BY must qualify the columns of a function with its alias
        if isinstance(this, exp.Identifier):
            schema = context.relation(this).schema
        else:
            schema = queries.bind_query(this, context).schema
        names |= {name.lower() for name in schema.names}
    return names


def grouping_sets(select: exp.Select, context: Context) -> exp.Expression:
    """Return the SELECT, or a UNION with one SELECT for each grouping set."""
    group = child(select, "group")
    parts = group.expressions if group is not None else []
    if not any(_several(part) for part in parts):
        for call in select.find_all(exp.Anonymous):
            name = call.name.lower()
            own = name in context.catalog.functions or is_aggregate(name, context.catalog)
            if name in _GROUPING and not own:
                raise StatementError(
                    f"{call.name} tells sets of keys apart, and here is one",
                    span_of(call),
                    "group by ROLLUP (…), CUBE (…) or GROUPING SETS (…)",
                )
        return select
    refused = {"qualify": "ranked"}
    if has_windows(select):
        refused |= {"order": "ordered", "limit": "limited"}
    for key, words in refused.items():
        if child(select, key) is not None:
            raise StatementError(
                f"each set of keys is a query of its own, so their rows are not {words} together",
                span_of(child(select, key)),
                "rank them in a query around it: SELECT * FROM (SELECT …, window_end() AS w …) AS r "
                "QUALIFY row_number() OVER (PARTITION BY w ORDER BY n DESC) <= 10",
            )
    sets = [list(chain.from_iterable(chosen)) for chosen in product(*(_sets(part) for part in parts))]
    if len(sets) > _MOST_SETS:
        raise StatementError(
            f"these are {len(sets)} sets of keys", span_of(parts[0]), f"group by {_MOST_SETS} at most"
        )
    keys = {_text(key): key for one in sets for key in one}
    types = _types(select, list(keys.values()), context)
    each = select
    if len(sets) > 1 and not has_windows(select):
        each = select.copy()
        for key in ENDS:
            each.set(key, None)
    branches = [_branch(each, one, keys, types, context) for one in sets]
    whole: exp.Expression = branches[0]
    for branch in branches[1:]:
        whole = at(exp.Union(this=whole, expression=branch, distinct=False), span_of(select))
    if each is not select:
        for key in ENDS:
            clause = child(select, key)
            whole.set(key, clause.copy() if clause is not None else None)
        order_by_items(whole, select)
    return whole


def _several(part: exp.Expression) -> bool:
    named = isinstance(part, exp.Anonymous) and part.name.lower() in ("rollup", "cube")
    return named or isinstance(part, nodes.KeySets)


def _sets(part: exp.Expression) -> list[list[exp.Expression]]:
    """Return the grouping sets of an element of GROUP BY."""
    if isinstance(part, nodes.KeySets):
        return [list(one.expressions) for one in part.expressions]
    if not _several(part):
        return [[part]]
    keys = part.expressions
    if part.name.lower() == "rollup":
        return [keys[:count] for count in range(len(keys), -1, -1)]
    if len(keys) > _MOST_SETS.bit_length():
        raise StatementError(
            "this is a cube of too many keys", span_of(part), "group by fewer, or GROUPING SETS"
        )
    return [list(some) for count in range(len(keys), -1, -1) for some in combinations(keys, count)]


def _types(select: exp.Select, keys: list[exp.Expression], context: Context) -> dict[str, str]:
    """Return the type of each grouping key, by the text of the key."""
    probe = select.copy()
    aliased = [exp.Alias(this=key.copy(), alias=_name(place)) for place, key in enumerate(keys)]
    probe.set("expressions", [*aliased, at(bare_call("count", exp.Star()), span_of(select))])
    probe.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    for key in ("having", *ENDS):
        probe.set(key, None)
    schema = queries.bind_query(probe, context).schema
    types = {column.name: str(column.type) for column in schema}
    return {_text(key): types[_name(place).name] for place, key in enumerate(keys)}


def _name(place: int) -> exp.Identifier:
    return exp.Identifier(this=f"key {place}", quoted=True)


def _branch(
    select: exp.Select,
    keys: Sequence[exp.Expression],
    every: dict[str, exp.Expression],
    types: dict[str, str],
    context: Context,
) -> exp.Select:
    """Return the SELECT for one grouping set.

    Keys outside the set are NULL.
    """
    branch = select.copy()
    own = {_text(key) for key in keys}
    unique = list({_text(key): key for key in keys}.values())
    branch.set("group", exp.Group(expressions=[key.copy() for key in unique]))

    def change(node: exp.Expression) -> exp.Expression | None:
        if isinstance(node, exp.Anonymous) and node.name.lower() in _GROUPING:
            return exp.Literal.number(_grouping(node, own, every))
        if isinstance(node, exp.Anonymous) and is_aggregate(node.name, context.catalog):
            return node
        text = _text(node)
        if text in every and text not in own and not isinstance(node, exp.Identifier):
            return parse_expression_at(f"CAST(NULL AS {types[text]})", span_of(node))
        return None

    items: list[exp.Expression] = []
    for item in branch.expressions:
        if isinstance(item, exp.Column) and _text(item) in every:
            # A key that becomes NULL gets an alias, so that the column keeps its name.
            item = at(exp.Alias(this=item, alias=item.this.copy()), span_of(item))
        items.append(replace_outermost(item, change))
    branch.set("expressions", items)
    having = child(branch, "having")
    if having is not None:
        having.set("this", replace_outermost(having.this, change))
    return branch


def _grouping(node: exp.Anonymous, own: set[str], every: dict[str, exp.Expression]) -> int:
    """Return the value of GROUPING() for a grouping set.

    The value has one bit for each argument, and the last argument has the lowest bit. A bit is 1 if its key
    is not in the grouping set.
    """
    value = 0
    for argument in node.expressions or list(every.values()):
        if _text(argument) not in every:
            raise StatementError(
                f"{to_esl(argument)} is no key of GROUP BY", span_of(argument), f"they are {', '.join(every)}"
            )
        value = 2 * value + (_text(argument) not in own)
    return value


def _text(node: exp.Expression) -> str:
    return to_esl(node).lower()
