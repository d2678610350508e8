"""Push-down analysis of an ad hoc query: columns, time range and LIMIT per relation.

    SELECT price FROM bid WHERE _ts >= now() - INTERVAL 5 MINUTES     _ts, price of five minutes' epochs
    SELECT * FROM bid ORDER BY _ts DESC LIMIT 10                      the newest epochs that have ten rows

The analysis is conservative. A clause that it does not support never reduces the columns or epochs that are
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from slicemill.adhoc.errors import syntax_error
from slicemill.columns.arrow_schema import TS
from slicemill.errors import SlicemillError

_MIRRORED = {"first": "last", "last": "first"}
# Kinds of expressions in a time bound. Only expressions that are equal for all rows are allowed.
_CONSTANT = (
    exp.Literal,
    exp.Cast,
    exp.DataType,
    exp.Interval,
    exp.Var,
    exp.IntervalSpan,
    exp.Add,
    exp.Sub,
    exp.Neg,
    exp.Paren,
    exp.Placeholder,
    exp.CurrentTimestamp,
    exp.CurrentDate,
)
_CONSTANT_CALLS = ("now", "today", "get_current_timestamp", "current_timestamp", "current_date")


class LimitOrder(Enum):
    """Order of the rows that a LIMIT selects: any order, or the first or last rows in time."""

    ANY = "any"
    OLDEST = "oldest"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class Limit:
    """LIMIT that can be pushed down to a relation. `probe` selects the timestamps of rows that pass WHERE."""

    wanted: LimitOrder
    rows: int
    probe: exp.Select


@dataclass(frozen=True, slots=True)
class RelationPushdown:
    """Columns, time bounds and LIMIT that a query requires from one relation.

    `columns` are in lower case; None means all columns. `first` and `last` are lower and upper bounds of
    `_ts`, and each required row satisfies all of them. If a query names a relation twice, only bounds that
    both occurrences have are used. `rows` is False if the query needs no rows.
    """

    columns: frozenset[str] | None = None
    first: tuple[exp.Expr, ...] = ()
    last: tuple[exp.Expr, ...] = ()
    limit: Limit | None = None
    rows: bool = True

    def requires_column(self, column: str) -> bool:
        return self.columns is None or column.lower() in self.columns


def parse_query(sql: str) -> exp.Query:
    """Parse an ad hoc query, which must be one SELECT."""
    try:
        statements = sqlglot.parse(sql, read="duckdb")
    except sqlglot.errors.SqlglotError as problem:
        raise syntax_error(sql, problem) from None
    trees = [tree for tree in statements if tree is not None]
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise SlicemillError("an ad hoc query is one SELECT")
    return trees[0]


def relation_names(sql: str) -> list[str]:
    """Return the names of the relations that a query reads, except those that it defines in WITH.

    >>> relation_names("WITH top AS (SELECT * FROM hot) SELECT * FROM top JOIN item USING (id)")
    ['hot', 'item']
    """
    return sorted(pushdowns_of(parse_query(sql)))


def is_system(table: exp.Table) -> bool:
    """Return True for a table of PostgreSQL's system catalog."""
    return table.db.lower() in ("pg_catalog", "information_schema") or table.name.lower().startswith("pg_")


def pushdowns_of(tree: exp.Query, parameters: Sequence[object] = ()) -> dict[str, RelationPushdown]:
    """Return the columns, time bounds and LIMIT that a query requires from each relation."""
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = [table for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
    indices = [table for table in tables if not is_system(table) and table.name.lower() not in own]
    if _is_zero(tree.args.get("limit")):
        return {table.name: RelationPushdown(rows=False) for table in indices}
    scopes = _scopes(tree)
    named = frozenset(identifier.name.lower() for identifier in tree.find_all(exp.Identifier))
    found: dict[str, RelationPushdown] = {}
    for table in indices:
        need = _relation_pushdown(table, scopes.get(id(table)), named)
        found[table.name] = _merge_pushdowns(found[table.name], need) if table.name in found else need
    if len(indices) == 1 and (limit := _limit(tree, indices[0], parameters)) is not None:
        found = {name: replace(need, limit=limit) for name, need in found.items()}
    return found


def _scopes(tree: exp.Query) -> dict[int, Scope]:
    """Map each table in a FROM clause, by its object id, to the SELECT (scope) in which it occurs."""
    try:
        scopes = list(traverse_scope(tree))
    except sqlglot.errors.SqlglotError:
        return {}
    return {
        id(source): scope
        for scope in scopes
        for source in scope.sources.values()
        if isinstance(source, exp.Table)
    }


def _relation_pushdown(table: exp.Table, scope: Scope | None, named: frozenset[str]) -> RelationPushdown:
    select = scope.expression if scope is not None else None
    if not isinstance(select, exp.Select) or table.args.get("pivots") or table.args.get("sample"):
        return RelationPushdown()
    joins: list[exp.Join] = select.args.get("joins") or []
    whole = {table.alias_or_name.lower(), table.name.lower()} & _column_names(select)
    every = whole or any(join.args.get("method") for join in joins) or _has_star(select)
    first, last = ((), ()) if any(_is_positional_join(join) for join in joins) else _bounds(select, table)
    return RelationPushdown(None if every else named | {TS}, first, last)


def _column_names(select: exp.Select) -> set[str]:
    """Return the unqualified column names in a SELECT. The name of a table means its whole row."""
    return {column.name.lower() for column in select.find_all(exp.Column) if not column.table}


def _has_star(select: exp.Select) -> bool:
    stars = [*select.find_all(exp.Star), *select.find_all(exp.Columns)]
    return any(not isinstance(star.parent, exp.Count) for star in stars)


def _is_positional_join(join: exp.Join) -> bool:
    """Return True for ASOF and POSITIONAL joins, whose matches depend on other rows."""
    return str(join.args.get("method") or "").upper() in ("ASOF", "POSITIONAL")


def _bounds(select: exp.Select, table: exp.Table) -> tuple[tuple[exp.Expr, ...], tuple[exp.Expr, ...]]:
    """Return the lower and upper bounds of the column `_ts` in the WHERE clause.

    Each bound is a constant expression. A row outside of the bounds is in no result, even of an outer join,
    because a comparison with NULL is never true.
    """
    where = select.args.get("where")
    found: dict[str, list[exp.Expr]] = {"first": [], "last": []}
    alone = not select.args.get("joins")
    for condition in (
        where.this.flatten() if where and isinstance(where.this, exp.And) else _where_condition(where)
    ):
        bare = condition.unnest()
        for side, bound in _bounds_in(bare, table.alias_or_name.lower(), alone):
            if _is_constant(bound):
                found[side].append(bound)
    return tuple(found["first"]), tuple(found["last"])


def _where_condition(where: exp.Where | None) -> list[exp.Expr]:
    return [where.this] if where else []


def _bounds_in(condition: exp.Expr, alias: str, alone: bool) -> Iterator[tuple[str, exp.Expr]]:
    def is_time(side: exp.Expr) -> bool:
        if not isinstance(side, exp.Column) or side.name.lower() != TS:
            return False
        return side.table.lower() == alias or (not side.table and alone)

    if isinstance(condition, exp.Between) and is_time(condition.this):
        yield "first", condition.args["low"]
        yield "last", condition.args["high"]
    elif isinstance(condition, exp.EQ):
        for side, other in ((condition.left, condition.right), (condition.right, condition.left)):
            if is_time(side):
                yield from (("first", other), ("last", other))
    elif isinstance(condition, (exp.GT, exp.GTE, exp.LT, exp.LTE)):
        end = "first" if isinstance(condition, (exp.GT, exp.GTE)) else "last"
        if is_time(condition.left):
            yield end, condition.right
        elif is_time(condition.right):
            yield _MIRRORED[end], condition.left


def _is_constant(bound: exp.Expr) -> bool:
    for node in bound.walk():
        call = node.name.lower() if isinstance(node, exp.Anonymous) else None
        if call not in _CONSTANT_CALLS and not isinstance(node, _CONSTANT):
            return False
    return True


def _merge_pushdowns(one: RelationPushdown, other: RelationPushdown) -> RelationPushdown:
    """Merge the requirements of two occurrences of a relation. Only equal bounds remain."""
    every = one.columns is None or other.columns is None
    return RelationPushdown(
        None if every else (one.columns or frozenset()) | (other.columns or frozenset()),
        tuple(bound for bound in one.first if bound in other.first),
        tuple(bound for bound in one.last if bound in other.last),
    )


def _limit(tree: exp.Query, table: exp.Table, parameters: Sequence[object]) -> Limit | None:
    """Return the LIMIT of a query if it can be pushed down, or None.

    The query must return rows of one relation unchanged, in any order or ordered by `_ts`.
    """
    if not isinstance(tree, exp.Select) or tree.args.get("limit") is None:
        return None
    clauses = ("joins", "laterals", "group", "having", "qualify", "distinct", "windows", "with_", "sample")
    if any(tree.args.get(clause) for clause in clauses) or table.args.get("sample"):
        return None
    if tree.find(
        exp.AggFunc, exp.Window, exp.Subquery, exp.Unnest, exp.Explode, exp.SetOperation, exp.Anonymous
    ):
        # An unknown function may be an aggregate, so the LIMIT cannot be pushed down.
        return None
    rows = _count(tree.args["limit"], parameters)
    passed = _count(tree.args["offset"], parameters) if tree.args.get("offset") else 0
    if rows is None or passed is None or _from_of(tree) is not table:
        return None
    wanted, order = LimitOrder.ANY, tree.args.get("order")
    if order is not None:
        first = order.expressions[0]
        if not _is_time_of(first.this, tree, table):
            return None
        wanted = LimitOrder.NEWEST if first.args.get("desc") else LimitOrder.OLDEST
    probe = exp.select(exp.column(TS, table=table.alias_or_name)).from_(table.copy())
    if tree.args.get("where") is not None:
        probe.set("where", tree.args["where"].copy())
    return Limit(wanted, rows + passed, probe)


def _from_of(tree: exp.Select) -> exp.Expr | None:
    found = tree.args.get("from_")
    return found.this if found is not None else None


def _is_time_of(key: exp.Expr, tree: exp.Select, table: exp.Table) -> bool:
    """Return True if the ORDER BY key is the column `_ts` of the relation.

    An alias `_ts` of another column does not count.
    """
    if not isinstance(key, exp.Column) or key.name.lower() != TS:
        return False
    if key.table and key.table.lower() != table.alias_or_name.lower():
        return False
    return not any(
        chosen.alias.lower() == TS
        and not (isinstance(chosen.this, exp.Column) and chosen.this.name.lower() == TS)
        for chosen in tree.expressions
        if isinstance(chosen, exp.Alias)
    )


def _count(clause: exp.Expr, parameters: Sequence[object]) -> int | None:
    value = clause.args.get("expression")
    if isinstance(value, exp.Literal) and not value.is_string and value.name.isdigit():
        return int(value.name)
    if isinstance(value, exp.Placeholder):
        index = value.name
        if index.isdigit() and 0 < int(index) <= len(parameters):
            given = parameters[int(index) - 1]
            return given if isinstance(given, int) and given >= 0 else None
    return None


def _is_zero(limit: exp.Expr | None) -> bool:
    return limit is not None and _count(limit, ()) == 0
