"""Name scopes, which resolve columns of inputs and arguments of aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from slicemill.catalog.expressions import Argument, Call, ColumnRef, Expr, transform
from slicemill.errors import did_you_mean, one_of
from slicemill.functions.signatures import ELSEWHERE, UNREPEATABLE
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import span_of
from slicemill.types import Column, Schema

NO_COLUMNS = Schema(())


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """Column that USING merges from several relations.

    In `SELECT *`, the merged column is at the position of the column of `owner`. Its value is the first
    non-NULL column of the relations in `values`.
    """

    owner: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """Name scope: relations by alias, with the scope of the enclosing query as `parent`.

    With `qualified`, a column reference includes the alias of its relation. `arguments` are the arguments of
    the aggregate whose body is being bound. A column hides an argument of the same name. `merged` maps the
    column names of USING to the merged columns. With `as_arguments`, resolved columns become arguments of the
    same names, because the query is called once for each row.
    """

    relations: tuple[tuple[str, Schema], ...]
    qualified: bool
    parent: Scope | None = None
    arguments: Schema = NO_COLUMNS
    merged: Mapping[str, MergedColumn] = field(default_factory=dict)
    as_arguments: bool = False

    def resolve(self, node: exp.Column) -> Expr:
        qualifier, name = node.table, node.name
        scope: Scope | None = self
        while scope is not None:
            found = scope._own(node, qualifier, name)
            if found is not None:
                return transform(found, _as_argument) if scope.as_arguments else found
            scope = scope.parent
        if not qualifier:
            argument = self.arguments.find(name)
            if argument is not None:
                return Argument(argument.name, argument.type)
        raise self._no_such_column(node, qualifier, name)

    def using_value(self, name: str) -> Expr | None:
        """Return the value of a column that USING merges, or None for other columns."""
        merged = self.merged.get(name.lower())
        if merged is None:
            return None
        schemas = dict(self.relations)
        columns = [(alias, schemas[alias].find(name)) for alias in merged.values]
        found = [ColumnRef.to(self.read_as(alias, column)) for alias, column in columns if column is not None]
        return found[0] if len(found) == 1 else Call("coalesce", tuple(found), found[0].type)

    def _own(self, node: exp.Column, qualifier: str, name: str) -> Expr | None:
        if not qualifier and (merged := self.using_value(name)) is not None:
            return merged
        matches: list[ColumnRef] = []
        owners: list[str] = []
        for alias, schema in self.relations:
            if qualifier and alias.lower() != qualifier.lower():
                continue
            column = schema.find(name)
            if column is not None:
                matches.append(ColumnRef.to(self.read_as(alias, column)))
                owners.append(alias)
        if len(matches) > 1:
            raise StatementError(
                f"{name} could be a column of {one_of(owners)}", span_of(node), f"write {owners[0]}.{name}"
            )
        return matches[0] if matches else None

    def read_as(self, alias: str, column: Column) -> Column:
        return column.of(alias) if self.qualified else column

    def _no_such_column(self, node: exp.Column, qualifier: str, name: str) -> StatementError:
        aliases = [alias for scope in self._chain() for alias, _ in scope.relations]
        if qualifier and qualifier.lower() not in {alias.lower() for alias in aliases}:
            hint = did_you_mean(qualifier, aliases) or (
                f"FROM names {one_of(aliases)}" if aliases else "nothing stands before this in FROM"
            )
            return StatementError(f"there is no {qualifier} in FROM", span_of(node), hint)
        columns = [
            column.name
            for scope in self._chain()
            for alias, schema in scope.relations
            if not qualifier or alias.lower() == qualifier.lower()
            for column in schema
        ]
        if not qualifier:
            columns += self.arguments.names
        near = did_you_mean(name, columns) or f"the columns are {', '.join(columns)}"
        hint = ELSEWHERE.get(name.lower(), near)
        if node.this.args.get("quoted"):
            hint = f"strings are written in single quotes: '{name}'"
        if not qualifier and name.lower() in UNREPEATABLE:
            return StatementError(
                f"{name} returns a different value in each run", span_of(node), UNREPEATABLE[name.lower()]
            )
        where = f" in {qualifier}" if qualifier else ""
        return StatementError(f"there is no column {name}{where}", span_of(node), hint)

    def _chain(self) -> list[Scope]:
        chain: list[Scope] = []
        scope: Scope | None = self
        while scope is not None:
            chain.append(scope)
            scope = scope.parent
        return chain


def _as_argument(expr: Expr) -> Expr | None:
    return Argument(expr.name, expr.type) if isinstance(expr, ColumnRef) else None
