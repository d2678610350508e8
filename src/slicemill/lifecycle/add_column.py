"""ALTER STREAM … ADD COLUMN: add columns to stored logs; running queries keep their output columns.

    CREATE QUERY q AS SELECT * FROM bid              CREATE QUERY q AS SELECT item, price FROM bid

A query's text is bound again after a restart, and then `SELECT *` would include the new column. So the
journal gets a new entry for the query: the text on the left is replaced by the text on the right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from slicemill.binder.script import BoundScript, bind_script
from slicemill.catalog.catalog import LATE, AlteredStream, Catalog, Statement
from slicemill.columns.arrow_schema import columns_with_default, to_arrow, with_default
from slicemill.columns.rows import plain_table
from slicemill.errors import SlicemillError
from slicemill.explain.statements import describe
from slicemill.lifecycle.catalog_journal import Entry, declaration, in_force, key_of
from slicemill.lifecycle.replace import Replacement, without_statement
from slicemill.operators.graph import Node
from slicemill.operators.registry import kind_of
from slicemill.plan.planner import Plan
from slicemill.plan.projection_pushdown import SourceProjection
from slicemill.plan.state_reuse import names_of_state
from slicemill.plan.statement_equality import diff_statements
from slicemill.runtime.streams import logs_of
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import Diagnostic, EslError, SourceText, TextSpan
from slicemill.storage.home import Home
from slicemill.types import Schema


def with_added_columns(
    catalog: Catalog, bound: BoundScript, entries: Sequence[dict[str, Any]], home: Home
) -> tuple[Catalog, Replacement]:
    """Bind the queries over altered streams again; return the new catalog and the journal entries.

    `entries` are the new entries of the script. Raises EslError if the new columns would change a query.
    """
    known, again = in_force([*home.statements, *entries]), list[dict[str, Any]]()
    widened: dict[str, pa.Schema] = {}
    problems: list[Diagnostic] = []
    altered = [(one, span) for one, span in bound.statements if isinstance(one, AlteredStream)]
    for one, span in altered:
        widened |= dict(_logs_to_widen(one, home, widened))
        for user in (
            user for name in (one.name, one.name + LATE) for user in catalog.users("RELATION", name)
        ):
            if (key := key_of(user)) not in known:
                continue
            found = _rewrite_reader(user, known[key], one, catalog, span)
            if isinstance(found, Diagnostic):
                problems.append(found)
            elif found is not None:
                catalog, text = found
                known[key] = {**known[key], "text": text}
                again.append({**known[key], "altered": True})
    if problems:
        raise EslError(bound.source, problems)
    when = entries[-1] if entries else {}
    again = [{**entry, "at": when["at"], "by": when["by"]} for entry in again]
    names = frozenset(one.name for one, _ in altered if one.name in widened)
    return catalog, Replacement(entries=[*entries, *again], altered=names, widened=widened)


def _rewrite_reader(
    user: Statement, entry: Entry, one: AlteredStream, catalog: Catalog, span: TextSpan
) -> tuple[Catalog, str] | Diagnostic | None:
    """Return the text under which a query keeps its meaning after ALTER STREAM, and the new catalog.

    Return None if the stored text of the query keeps its meaning. Return a Diagnostic if no text does.
    """
    without = without_statement(user, catalog)
    before = without.copy()
    before.add(one.before)
    said = declaration(entry)
    bound = bind_script(SourceText(said), before, stored=True)
    text = _expand_stars(bound)
    for words in (said, text):
        found = bind_script(SourceText(words), without, stored=True)
        if found.diagnostics:
            why = found.diagnostics[0].message
        elif parts := diff_statements(user, found.statements[0][0]):
            why = f"its {parts[0]} would change"
        else:
            return None if words == said else (found.catalog, words)
    what, columns = f"{describe(user)[0]} {user.name}", ", ".join(one.added.names)
    return Diagnostic(
        f"the new column {columns} of {one.name} would change the meaning of {what}: {why}",
        span,
        f"give the column another name, or drop {what} first",
    )


def _expand_stars(bound: BoundScript) -> str:
    """Replace each `*` of a SELECT in a script by the names of the columns that it stands for."""
    text = bound.source.text
    for span, columns in sorted(bound.stars.items(), key=lambda star: -star[0].start):
        text = text[: span.start] + ", ".join(map(to_esl, columns)) + text[span.end :]
    return text


def _logs_to_widen(
    one: AlteredStream, home: Home, before: Mapping[str, pa.Schema]
) -> Iterator[tuple[str, pa.Schema]]:
    """Yield the name and new schema of each log of an altered stream that lacks the new columns."""
    declared = {role: name for role, (name, _) in logs_of(one.after).items() if role != "errors"}
    defaults = dict(one.defaults)
    given = Schema(tuple(column for column in one.added if column.name in defaults))
    row = plain_table([tuple(defaults[name] for name in given.names)], given)
    for name in declared.values():
        known = before.get(name) or (home.logs[name].columns if name in home.logs else None)
        if known is not None and not set(one.added.names) <= set(known.names):
            columns = with_default(to_arrow(one.added), row)
            yield name, pa.schema([*known, *columns])


def reject_lost_state(before: Plan, after: Plan) -> None:
    """Raise an error if ALTER STREAM would make the operator state of a query unreadable.

    State is found by its content name (`plan.rules.name_by_content`). A subquery with `SELECT *` is no
    operator, but a subquery with a list of columns is a projection. So expanding a * can rename state
    downstream of the subquery. State that addresses columns by position cannot get another column.
    """
    known = dict(_state(after))
    for log, names in _state(before):
        if not set(names) <= set(known.get(log, names)):
            raise SlicemillError(
                f"{log} has a subquery with SELECT * over the stream, and would lose its state; "
                "first replace the query by one whose subquery names its columns, or drop the query"
            )
    for node in before.graph:
        by_position = kind_of(node.operator).by_position(node.operator)
        if by_position and node.id in after.graph.nodes and _inputs(node, before) != _inputs(node, after):
            raise SlicemillError(
                f"the state of {node.owner} stores whole rows of the stream, and no column can be added; "
                "first replace the query by one over CREATE STREAM … AS SELECT of its columns, or drop it"
            )


def _inputs(node: Node, plan: Plan) -> list[Schema]:
    return [plan.graph[source].schema for source in node.inputs]


def _state(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    for task in plan.tasks:
        for root, log in task.outputs:
            yield log, names_of_state(plan.graph, task, root)


def always_stored(
    needs: Mapping[str, SourceProjection], home: Home, widened: Mapping[str, pa.Schema]
) -> dict[str, SourceProjection]:
    """Add all columns that have a DEFAULT to the columns that the log of each stream stores.

    Every new row must store the columns with a DEFAULT. In a stored row, a missing value means that the row
    is older than the column and has the default.
    """
    found = {}
    for name, need in needs.items():
        log = home.logs.get(name)
        columns = widened.get(name) or (None if log is None else log.columns)
        found[name] = need if columns is None else need.with_columns(columns_with_default(columns))
    return found
