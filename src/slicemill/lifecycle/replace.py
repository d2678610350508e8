"""CREATE OR REPLACE: bind definitions again, and keep operator state that still fits.

All statements that use a replaced definition are bound again in the same step. The following statements
restart without state:

- queries that read a replaced stream, because their windows hold rows of the old definition
- callers of a function or an aggregate in Python, because the effect of its change is unknown
- changelogs, because their state describes emitted rows, and all rows of the old table are deleted

All other state is named by its content (`plan.rules.name_by_content`), and is kept if its name stays the
same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from slicemill.binder.script import bind_script
from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.catalog import (
    Catalog,
    DerivedStream,
    QueryDefinition,
    Statement,
    Table,
    View,
    relations_of,
)
from slicemill.catalog.extended import ComputedStream
from slicemill.catalog.function import FunctionDefinition
from slicemill.explain.statements import describe
from slicemill.lifecycle.catalog_journal import (
    Entry,
    Key,
    ReplacedStatement,
    declaration,
    emits_changelog,
    key_of,
)
from slicemill.plan.content import quote_name
from slicemill.plan.statement_equality import aggregates_called
from slicemill.sql.errors import Diagnostic, EslError, SourceText
from slicemill.time import END
from slicemill.types import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Effects of CREATE OR REPLACE or ALTER statements on queries and streams.

    - `logs`: queries and streams with a new definition
    - `anew`: queries that restart without state
    - `tables`: queries of `anew` that restart only because the rows of their changelogs are deleted
    - `emptied`: changelogs whose rows are all deleted, with their old schema
    - `past`: queries that first read rows of the past (FROM BEGINNING)
    - `because`: by definition with unchanged text, the replaced definition that it uses
    - `entries`: statements for the journal
    - `altered`, `widened`: streams with added columns, and the new columns of their logs
    - `moved`: streams that get another source
    """

    logs: frozenset[str] = frozenset()
    anew: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    emptied: Mapping[str, Schema] = field(default_factory=dict)
    past: frozenset[str] = frozenset()
    because: Mapping[Key, str] = field(default_factory=dict)
    entries: Sequence[dict[str, Any]] = ()
    altered: frozenset[str] = frozenset()
    widened: Mapping[str, pa.Schema] = field(default_factory=dict)
    moved: frozenset[str] = frozenset()


NOTHING_REPLACED = Replacement()


def with_users(
    catalog: Catalog, replaced: Sequence[ReplacedStatement], entries: Mapping[Key, Entry], source: SourceText
) -> tuple[Catalog, Replacement]:
    """Bind all statements that use replaced definitions again; return the new catalog and the effects.

    `entries` are the statements in force. Raises EslError if one of these statements can no longer be bound.
    """
    own = {key_of(one.after) for one in replaced}
    logs = {one.after.name for one in replaced if _computes(one.after)}
    anew: set[str] = set()
    tables: set[str] = set()
    emptied: dict[str, Schema] = {}
    because: dict[Key, str] = {}
    problems: list[Diagnostic] = []

    def begin_tables_anew(before: Statement, after: Statement | None) -> None:
        if isinstance(before, (QueryDefinition, DerivedStream)) and before.schema.changelog:
            emptied[before.name] = before.schema
        if emits_changelog(before) or emits_changelog(after):
            tables.add(before.name)

    moved = frozenset(one.after.name for one in replaced if one.only_moves)
    for one in replaced:
        if one.only_moves:
            continue
        begin_tables_anew(one.before, one.after)
        problems += _other_tables(catalog, one)
        others = {one.after.name.lower()} if isinstance(one.after, (DerivedStream, ComputedStream)) else set()
        unknown = _is_unknown(one.after) or _is_unknown(one.before)
        calling = partial(_aggregates_calling, catalog)
        for user in _in_order(catalog.all_users(one.after, calling, of_tables=False)):
            key = key_of(user)
            if key in own or key not in entries or isinstance(user, Table):
                continue
            text = SourceText(declaration(entries[key]))
            bound = bind_script(text, without_statement(user, catalog), stored=True)
            if bound.diagnostics:
                problems.append(_unbindable(user, one, bound.diagnostics[0]))
                continue
            catalog = bound.catalog
            because[key] = one.after.name
            if not _computes(user):
                continue
            logs.add(user.name)
            now = bound.statements[0][0]
            begin_tables_anew(user, now)
            problems += _other_tables(catalog, ReplacedStatement(user, now, one.span))
            if unknown or others.intersection(map(str.lower, _read_by(user))):
                anew.add(user.name)
            if isinstance(user, (DerivedStream, ComputedStream)):
                others.add(user.name.lower())
    if problems:
        raise EslError(source, problems)
    past = {
        one.after.name
        for one in replaced
        if isinstance(one.after, QueryDefinition) and one.after.begins_us not in (None, END)
    }
    changed = (frozenset(with_writers_of(names, catalog)) for names in (logs, anew, tables - anew, past))
    logs_now, anew_now, tables_now, past_now = changed
    effects = Replacement(
        logs=logs_now,
        anew=anew_now | tables_now,
        tables=tables_now,
        emptied=emptied,
        past=past_now,
        because=because,
    )
    return catalog, replace(effects, moved=moved)


def with_writers_of(names: Collection[str], catalog: Catalog) -> set[str]:
    """Return the given queries and streams, and the queries that write their rows into tables."""
    return {*names, *(one.name for name in names for one in catalog.writers_for(name))}


def _unbindable(user: Statement, one: ReplacedStatement, why: Diagnostic) -> Diagnostic:
    what = f"{describe(user)[0]} {user.name}"
    return Diagnostic(
        f"{what} uses {one.after.name}, and would not be right any more: {why.message}",
        one.span,
        f"replace {what} in the same text, behind this, or drop it first",
    )


def _other_tables(catalog: Catalog, one: ReplacedStatement) -> Iterator[Diagnostic]:
    """Yield an error for each table over a replaced changelog, if the columns of the changelog change."""
    before, after = getattr(one.before, "schema", None), getattr(one.after, "schema", None)
    for table in catalog.relations.values() if before != after else ():
        made = table.materialized if isinstance(table, Table) else None
        if made is not None and made.name.lower() == one.after.name.lower():
            yield Diagnostic(
                f"table {table.name} has the rows of {one.after.name}, whose columns or key would be others",
                one.span,
                f"DROP TABLE {quote_name(table.name)} first, and create it again behind this",
            )


def _computes(statement: Statement) -> bool:
    """Return True if the engine runs a statement continuously and stores its results in a log."""
    if isinstance(statement, QueryDefinition):
        return statement.continuous
    return isinstance(statement, (DerivedStream, ComputedStream))


def _is_unknown(statement: Statement) -> bool:
    """Return True for a function or a Python aggregate: the effect of its change on callers is unknown."""
    if isinstance(statement, FunctionDefinition):
        return True  # the names of the state of its callers do not include the text of the function
    return isinstance(statement, AggregateDefinition) and statement.external is not None


def _read_by(statement: Statement) -> Iterator[str]:
    if isinstance(statement, (DerivedStream, View, QueryDefinition)):
        yield from relations_of(statement.query)
    elif isinstance(statement, ComputedStream):
        yield from statement.reads


def _in_order(users: Sequence[Statement]) -> list[Statement]:
    """Sort statements so that each statement follows the statements on which it depends."""
    found: list[Statement] = [one for one in users if isinstance(one, FunctionDefinition)]
    found += [one for one in users if not _reads(one) and not isinstance(one, FunctionDefinition)]
    left = [one for one in users if _reads(one)]
    while left:
        names = {one.name.lower() for one in left if not isinstance(one, QueryDefinition)}
        ready = [one for one in left if names.isdisjoint(map(str.lower, _read_by(one)))]
        assert ready, "no relation reads itself"
        found += ready
        left = [one for one in left if all(one is not other for other in ready)]
    return found


def _reads(statement: Statement) -> bool:
    return isinstance(statement, (DerivedStream, View, QueryDefinition, ComputedStream))


def _aggregates_calling(catalog: Catalog, statement: Statement) -> list[Statement]:
    if not isinstance(statement, AggregateDefinition):
        return []
    defined = (*catalog.base_aggregates.values(), *catalog.window_aggregates.values())
    wanted = statement.name.lower()
    return [
        one
        for one in defined
        if wanted in {catalog.declaration_name(name).lower() for name in aggregates_called(one)}
    ]


def without_statement(statement: Statement, catalog: Catalog) -> Catalog:
    """Return a copy of a catalog from which one statement is removed."""
    without, name = catalog.copy(), statement.name.lower()
    if isinstance(statement, QueryDefinition):
        without.queries.pop(name, None)
    elif isinstance(statement, FunctionDefinition):
        without.functions.pop(name, None)
    elif isinstance(statement, AggregateDefinition):
        (without.window_aggregates if statement.window else without.base_aggregates).pop(name, None)
    else:
        without.relations.pop(name, None)
    without.forget_calls(statement)
    return without
