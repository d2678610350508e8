"""Statement executor: applies all statements of a script to the running catalog, or none of them.

script ──bind──► reconcile with the stored statements ──► stage row changes ──► one journal record
                                                                                   │
                 pause, resume, restart, replay  ◄── alerts, settings ◄── running catalog
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from slicemill.binder import bind
from slicemill.binder.script import BoundScript, bind_script
from slicemill.catalog.catalog import (
    AlteredQuery,
    AlteredStream,
    Catalog,
    DroppedName,
    Setting,
    Statement,
    View,
)
from slicemill.catalog.statements import LifecycleChange, Replay
from slicemill.lifecycle.add_column import with_added_columns
from slicemill.lifecycle.alerts import AlertRunner
from slicemill.lifecycle.catalog_journal import (
    QueryVersion,
    StoredStatements,
    changes_no_task,
    log_warnings,
    new_entries,
    user,
    versions_of,
)
from slicemill.lifecycle.pause_and_retry import QueryLifecycle
from slicemill.lifecycle.relations import rows_in_window
from slicemill.lifecycle.replace import NOTHING_REPLACED
from slicemill.lifecycle.replace_report import ReplaceEffect, predict_effects
from slicemill.lifecycle.replay import replay
from slicemill.lifecycle.running_catalog import RunningCatalog
from slicemill.lifecycle.tables import RejectedChange, StagedChanges
from slicemill.runtime.driver_limit import CpuTimeLimit
from slicemill.sql.errors import Diagnostic, EslError, SourceText
from slicemill.storage.changes import Change
from slicemill.storage.filesystem import raise_storage_full
from slicemill.types import Row


class StatementExecutor:
    """Executes scripts, and returns all definitions that a name has had."""

    def __init__(self, running: RunningCatalog, lifecycle: QueryLifecycle, alerts: AlertRunner) -> None:
        self._running = running
        self._lifecycle = lifecycle
        self._alerts = alerts
        # Cache of `versions`, by kind and name; valid for the given number of statements in the journal.
        self._versions: dict[tuple[str, str], tuple[int, list[QueryVersion]]] = {}

    def execute(self, esl: str | SourceText, by: str | None = None) -> list[Statement]:
        """Run the statements of a script, all or none.

        The journal records `by` as the user of the statements, by default the user of this process. INSERT,
        UPDATE, DELETE and TRUNCATE take effect after all declarations.
        """
        return self._execute(esl, by)[0]

    def change_rows(self, esl: str | SourceText, by: str | None = None) -> list[int]:
        """Run INSERT, UPDATE, DELETE and TRUNCATE, all or none.

        Return the number of rows that each statement affects. Stream rows that arrive later are joined with
        the new rows.
        """
        return list(self._execute(esl, by)[1])

    def check(self, esl: str) -> None:
        """Raise EslError with all errors of a script, without running statements or code."""
        source = SourceText(esl)
        bound = bind_script(source, self._running.catalog, imports=False)
        if bound.diagnostics:
            raise EslError(source, bound.diagnostics)

    def explain_replace(self, esl: str | SourceText) -> list[ReplaceEffect]:
        """Predict which state and results CREATE OR REPLACE statements would keep, without executing them."""
        return predict_effects(self._running, esl)

    def restore(self) -> list[str]:
        """Declare the statements stored in the home directory; return the names of unreadable statements."""
        kept = self._stored()
        self._running.change_to(kept.catalog, ())
        self._alerts.watch(self._running.catalog.alerts)
        self._set(kept.settings)
        return kept.unread

    def versions(self, kind: str, name: str) -> list[QueryVersion]:
        """Return all definitions that a name has had, oldest first."""
        statements = self._running.home.statements
        known = self._versions.get((kind, name))
        if known is None or known[0] != len(statements):
            known = self._versions[kind, name] = len(statements), versions_of(statements, kind, name)
        return known[1]

    def _stored(self) -> StoredStatements:
        home = self._running.home
        return StoredStatements.of(home.statements, home.folder, home.logs)

    def _execute(self, esl: str | SourceText, by: str | None) -> tuple[list[Statement], Sequence[int]]:
        running = self._running
        with running.changing, raise_storage_full(running.home.folder):
            running.dispatcher.check()
            kept = self._stored()
            bound = bind(esl, running.catalog, lambda: kept.catalog)
            statements = [statement for statement, _ in bound.statements]
            counts = self._declare(bound, kept, statements, by)
            self._set(statements)
            for statement in statements:
                if isinstance(statement, LifecycleChange):
                    self._lifecycle.change(statement, user() if by is None else by)
            return [self._replayed(one) if isinstance(one, Replay) else one for one in statements], counts

    def _declare(
        self, bound: BoundScript, kept: StoredStatements, statements: Sequence[Statement], by: str | None
    ) -> Sequence[int]:
        """Commit the declarations and table changes of a script; return the row count of each change."""
        running = self._running
        catalog, same, replaced = kept.reconcile(bound)
        log_warnings(bound)
        dropped = [statement for statement in statements if isinstance(statement, DroppedName)]
        with CpuTimeLimit("the change of tables"):
            staged = self._stage_changes(bound, catalog, dropped)
        entries = new_entries(bound, running.home.statements, running.clock(), same, by)
        alerts = self._alerts.begun(statements)
        # One record holds all changes, so that a script is atomic across a crash.
        others = Change(alerts=alerts)
        with running.dispatcher.dropping(one.name for one in dropped):
            if all(changes_no_task(statement) for statement in statements):
                others = replace(others, catalog=entries)
                if staged.versions:
                    running.commit_tables(others, staged)
                else:
                    running.home.commit(others)
                running.catalog = catalog
            elif replaced:
                running.replace_with(catalog, kept, replaced, entries, bound.source, others, staged)
            elif any(isinstance(statement, (AlteredQuery, AlteredStream)) for statement in statements):
                catalog, altering = with_added_columns(catalog, bound, entries, running.home)
                running.alter_with(catalog, dropped, kept, altering, others, staged)
            else:
                declared = replace(NOTHING_REPLACED, entries=entries)
                running.change_to(catalog, dropped, declared, others, staged)
        self._alerts.watch(running.catalog.alerts, alerts)
        return staged.counts

    def _replayed(self, statement: Replay) -> Replay:
        running = self._running
        running.open()
        outcome = replay(statement, running.dispatcher, running.home, running.folder, running.clock())
        return replace(statement, outcome=outcome)

    def _stage_changes(
        self, bound: BoundScript, catalog: Catalog, dropped: Sequence[DroppedName]
    ) -> StagedChanges:
        """Compute the table rows after a script, before the declarations of the script take effect."""
        running = self._running
        gone = [name.name for name in dropped if name.kind == "TABLE"]
        changes = [change for change, _ in bound.changes]

        def held(view: View) -> Sequence[Row]:
            return rows_in_window(view, running)

        try:
            return running.tables.stage(changes, catalog, gone, held)
        except RejectedChange as refused:
            index = bound.changes[refused.index][1]
            raise EslError(bound.source, [Diagnostic(refused.message, index, refused.hint)]) from None

    def _set(self, statements: Iterable[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, Setting):
                self._running.dispatcher.chooser.set_policy(statement.value, statement.component)
