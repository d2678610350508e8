"""Binder of scripts, which collects the errors of all statements.

A statement with an error declares no object. Later statements that depend on its name report no further
errors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from sqlglot import exp

from slicemill.binder import create as definitions
from slicemill.binder.aggregates import bind_aggregate
from slicemill.binder.alerts import bind_alert
from slicemill.binder.alter import (
    bind_added_columns,
    bind_alter,
    bind_lifecycle_change,
    bind_replay,
    object_exists,
    without_named,
)
from slicemill.binder.context import BrokenDependency, Context, StatementErrors, passwords_in
from slicemill.binder.functions import bind_function
from slicemill.binder.tables import ROW_CHANGES, bind_change, bind_materialized, bind_table
from slicemill.catalog.catalog import Catalog, DroppedName, Statement
from slicemill.catalog.table_change import TableChange
from slicemill.extension import load
from slicemill.extension import statements as extension_statements
from slicemill.sql import nodes
from slicemill.sql.cursor import report_deep_nesting, too_deep_error
from slicemill.sql.errors import Diagnostic, SourceText, StatementError, TextSpan
from slicemill.sql.grammar import statements as grammar
from slicemill.sql.nodes import child, span_of

_KINDS = ("STREAM", "TABLE", "VIEW", "QUERY", "AGGREGATE", "FUNCTION", "ALERT")

# Syntax nodes of statements that change an existing object and declare no name.
_ACTS = (
    nodes.DropObject,
    nodes.AlterQuery,
    nodes.AlterStream,
    nodes.SetOption,
    nodes.ChangeLifecycle,
    nodes.ReplayErrors,
)


@dataclass(frozen=True, slots=True)
class BoundScript:
    """Result of binding a script.

    The result has the valid statements with their spans, the catalog, errors and warnings. `changes` are the
    row changes (INSERT, UPDATE, DELETE) in the order of the text.
    """

    source: SourceText
    statements: tuple[tuple[Statement, TextSpan], ...]
    catalog: Catalog
    diagnostics: tuple[Diagnostic, ...]
    warnings: tuple[Diagnostic, ...] = ()
    changes: tuple[tuple[TableChange, TextSpan], ...] = ()
    # Positions of CREATE OR REPLACE statements in `statements`.
    replacing: frozenset[int] = frozenset()
    # Columns to which each * in a select list expands, by position of the * in the text.
    stars: Mapping[TextSpan, tuple[exp.Column, ...]] = field(default_factory=dict)


def bind_script(
    source: SourceText,
    catalog: Catalog | None = None,
    kept: Callable[[], Catalog] | None = None,
    *,
    imports: bool = True,
    stored: bool = False,
) -> BoundScript:
    """Parse and bind a text against a copy of `catalog`.

    Objects in `kept` can only be dropped. Without `imports` no module that the text names is imported, and
    Python classes are not checked. A text that is `stored` in the home directory was accepted before, so the
    text may contain a password.
    """
    known = catalog.copy() if catalog is not None else Catalog()
    with report_deep_nesting(source):
        parsed, diagnostics = grammar.script(source)
    left = cache(lambda: Catalog() if kept is None else kept().copy())
    later = Counter(filter(None, map(_declaration_name, parsed)))
    broken = frozenset(name.lower() for name in _declaration().findall(source.text)) - later.keys()
    context = Context(known, broken, kept=left, imports=imports, later=later)
    warnings = [diagnostic for diagnostic in diagnostics if diagnostic.warning]
    diagnostics = [diagnostic for diagnostic in diagnostics if not diagnostic.warning]
    bound: list[tuple[Statement, TextSpan]] = []
    changes: list[tuple[TableChange, TextSpan]] = []
    replacing: set[int] = set()
    for node in parsed:
        if not stored:
            diagnostics.extend(passwords_in(node))
        declared = _declaration_name(node)
        later[declared] -= 1
        try:
            called: set[str] = set()
            own = replace(context, functions_called=called, warnings=warnings)
            if isinstance(node, ROW_CHANGES):
                changes.append((bind_change(node, own), span_of(node)))
                continue
            statements = bind_statement(node, own)
        except StatementError as mistake:
            diagnostics.append(mistake.diagnostic)
        except StatementErrors as mistakes:
            diagnostics.extend(mistakes.diagnostics)
        except BrokenDependency:
            pass
        except RecursionError:
            diagnostics.append(too_deep_error(source, span_of(node)))
        else:
            if isinstance(node, nodes.CreateMode) and child(node, "mode") == nodes.REPLACE:
                replacing.add(len(bound))
                known.forget_calls(statements[0])
            for statement in statements:
                known.add(statement, called)
                if isinstance(statement, DroppedName) and left.cache_info().currsize:
                    left().add(statement)
                bound.append((statement, span_of(node)))
            continue
        if declared:
            # Statements that use the name are not checked, because only the error of its
            # declaration is reported.
            context = replace(context, broken=context.broken | {declared})
    in_order = sorted(warnings, key=lambda warning: warning.span.start)
    found = tuple(diagnostics), tuple(in_order), tuple(changes), frozenset(replacing)
    return BoundScript(source, tuple(bound), known, *found, context.stars)


@cache
def _declaration() -> re.Pattern[str]:
    """Return a regular expression that finds declared names, also in invalid text."""
    kinds = "|".join((*_KINDS, *extension_statements()))
    return re.compile(
        r"(?:\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:(?:ALGEBRAIC|WINDOW)\s+)*"
        rf"(?:{kinds})(?:\s+IF\s+NOT\s+EXISTS)?|^AGGREGATE)\s+[\"`]?(\w+)",
        re.IGNORECASE | re.MULTILINE,
    )


def _declaration_name(node: exp.Expression) -> str:
    """Return the lower-case name that a statement declares, or ""."""
    if isinstance(node, nodes.CreateMode):
        return _declaration_name(node.this)
    declares = not isinstance(node, (*_ACTS, *ROW_CHANGES))
    return str(node.this.name).lower() if declares and isinstance(node.this, exp.Identifier) else ""


def bind_statement(node: exp.Expression, context: Context) -> list[Statement]:
    """Bind a statement.

    The result is empty if the statement has no effect because of IF EXISTS or IF NOT EXISTS.
    """
    if isinstance(node, nodes.CreateMode):
        if child(node, "mode") == nodes.REPLACE:
            return [_bind_one(node.this, replace(context, catalog=without_named(node.this, context.catalog)))]
        return [] if object_exists(node.this, context) else [_bind_one(node.this, context)]
    if isinstance(node, nodes.DropObject):
        return [*definitions.bind_drop(node, context)]
    return [_bind_one(node, context)]


def _bind_one(node: exp.Expression, context: Context) -> Statement:
    if isinstance(node, nodes.CreateStream):
        return definitions.bind_stream(node, context)
    if isinstance(node, nodes.CreateTable):
        return bind_table(node, context)
    if isinstance(node, nodes.MaterializeTable):
        return bind_materialized(node, context)
    if isinstance(node, nodes.CreateView):
        return definitions.bind_view(node, context)
    if isinstance(node, nodes.CreateQuery):
        return definitions.bind_named_query(node, context)
    if isinstance(node, nodes.CreateObject):
        bound: Statement = load(extension_statements()[node.kind].bind)(node, context)
        return bound
    if isinstance(node, nodes.CreateFunction):
        return bind_function(node, context)
    if isinstance(node, nodes.CreateAlert):
        return bind_alert(node, context)
    if isinstance(node, nodes.CreateAggregate):
        return bind_aggregate(node, context)
    if isinstance(node, nodes.ReplayErrors):
        return bind_replay(node, context)
    if isinstance(node, nodes.ChangeLifecycle):
        return bind_lifecycle_change(node, context)
    if isinstance(node, nodes.AlterQuery):
        return bind_alter(node, context)
    if isinstance(node, nodes.AlterStream):
        return bind_added_columns(node, context)
    if isinstance(node, nodes.SetOption):
        return definitions.bind_setting(node, context)
    return definitions.bind_bare_query(node, context)
