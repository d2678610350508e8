"""Running catalog: the declared statements, with their plan, tasks, streams and sinks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from slicemill.catalog.catalog import (
    AGAIN,
    ERRORS,
    Catalog,
    DerivedStream,
    DroppedName,
    QueryDefinition,
    SourceSpec,
    Stream,
    Table,
)
from slicemill.catalog.extended import ComputedStream
from slicemill.catalog.queries import RelationQuery
from slicemill.columns.arrow_schema import to_arrow
from slicemill.connectors.origin import is_socket
from slicemill.connectors.registry import has_readers
from slicemill.connectors.sinks.delivery import SinkRunner
from slicemill.connectors.sinks.registry import alternative_target, open_sink, share_persistent_target
from slicemill.connectors.sinks.sink import Sink
from slicemill.errors import SlicemillError
from slicemill.extension import computed_kinds
from slicemill.lifecycle.add_column import always_stored, reject_lost_state
from slicemill.lifecycle.catalog_diff import CatalogDiff
from slicemill.lifecycle.catalog_journal import ReplacedStatement, StoredStatements, in_force, undo_entries
from slicemill.lifecycle.compaction import deletes_of_all
from slicemill.lifecycle.query import Query
from slicemill.lifecycle.replace import NOTHING_REPLACED, Replacement, with_users
from slicemill.lifecycle.start_positions import starts_apart
from slicemill.lifecycle.tables import NOTHING_STAGED, StagedChanges, TableVersions
from slicemill.lifecycle.task_changes import PreparedTasks, TaskChanges
from slicemill.lifecycle.task_fields import missing_logs, query_placements, without_logs
from slicemill.operators.graph import QueryGraph
from slicemill.operators.specs import Source
from slicemill.plan.content import quote_name
from slicemill.plan.partitioning import exchanges_by_log
from slicemill.plan.planner import Plan, Planner
from slicemill.plan.projection_pushdown import merge_projections
from slicemill.plan.state_reuse import state_is_kept, table_is_kept
from slicemill.plan.statement_equality import views_to_answer
from slicemill.runtime.driver import Dispatcher
from slicemill.runtime.retained_logs import WHOLE, changed_retention, streams_with_retention
from slicemill.runtime.spark_ingest import SparkIngest
from slicemill.runtime.streams import RunningStream, Supply, check_sources, streams_to_read
from slicemill.runtime.task_queue import Goal
from slicemill.secrets import redact_address
from slicemill.sql.errors import SourceText
from slicemill.storage.changes import Appended, Change
from slicemill.storage.home import Home

_LOGGER = logging.getLogger("slicemill")


@dataclass(frozen=True, slots=True)
class _Statement:
    """Changes that a statement commits in the same journal record as the change of the plan."""

    replacing: Replacement = NOTHING_REPLACED
    others: Change = field(default_factory=Change)
    staged: StagedChanges = NOTHING_STAGED


@dataclass(slots=True, kw_only=True)
class RunningCatalog:
    """Declared names, with the queries, tasks, streams and sinks that run.

    `mill` is the id of the engine under which tasks and readers write. `handle` makes the handle of a new
    query. No task runs before `open`, because a task with only some of its queries would skip input of its
    other queries.
    """

    home: Home
    mill: str
    folder: Path
    clock: Callable[[], int]
    read_sources: bool
    poll_ms: int
    dispatcher: Dispatcher
    tables: TableVersions
    changes: TaskChanges
    sinks: SinkRunner
    ingest: SparkIngest
    handle: Callable[[QueryDefinition], Query]
    catalog: Catalog = field(default_factory=Catalog)
    plan: Plan = field(default_factory=lambda: Plan(QueryGraph({}), ()))
    queries: dict[str, Query] = field(default_factory=dict)
    opened: bool = False
    # Lock that a thread holds while it changes declarations.
    changing: threading.RLock = field(default_factory=threading.RLock)
    reading: bool = False  # True while sources are read, until `stop_reading`
    planner: Planner = field(default_factory=Planner)
    # Function that writes the last rows of a dropped query into its table; False if the table rejects rows.
    settle: Callable[[QueryDefinition], bool] = lambda _: True

    def open(self) -> None:
        """Start all tasks from their committed state.

        All queries of these tasks must be declared before.
        """
        with self.dispatcher.paused():
            if not self.opened:
                self.changes.note_left_out(self.catalog)
                self._run_tasks(self.plan, self.catalog)
                self.opened = True

    @property
    def streams(self) -> dict[str, RunningStream]:
        """Declared streams that queries read, by name."""
        return {name: stream for name, stream in self.dispatcher.streams.items() if AGAIN not in name}

    def read_all(self) -> None:
        """Read all rows that the sources have now, without running queries."""
        self.open()
        self.dispatcher.read_all()
        if self.read_sources:
            self.ingest.read_to_the_end(self.streams)
        check_sources(self.dispatcher.streams.values())

    def start_reading(self) -> None:
        self.reading = self.read_sources
        if self.reading:
            self.ingest.start(self.dispatcher.streams, self.poll_ms)

    def stop_reading(self) -> None:
        self.reading = False
        self.ingest.stop()

    def change_to(
        self,
        catalog: Catalog,
        dropped: Sequence[DroppedName],
        replacing: Replacement = NOTHING_REPLACED,
        others: Change | None = None,
        staged: StagedChanges = NOTHING_STAGED,
    ) -> None:
        """Commit a new catalog, and run its tasks.

        A name that is dropped and created again starts empty. One journal record has the statements of
        `replacing`, the change `others` and the `staged` rows of tables. If a name is dropped and created
        again, two records are written. The first record drops the name and has all statements, so a start
        after a crash declares the rest.
        """
        without = self.catalog.copy()
        for name in dropped:
            without.add(name)
        logs = [name.name for name in dropped if name.kind in computed_kinds()]
        gone = [name for name in logs if not self._is_declared(name)]
        tables = [name.name for name in dropped if name.kind == "TABLE"]
        going = [
            one
            for name, one in self.catalog.queries.items()
            if one.writes_for is not None and (name not in catalog.queries or one.writes_for in gone)
        ]
        left = [one for one in going if not self.settle(one) and one.writes_for not in gone]
        if left:
            raise SlicemillError(
                f"table {left[0].options.table} does not take the rows that {left[0].writes_for} writes; "
                "see what is told among the problems, or DROP it first"
            )
        dropped_writers = [one.name for one in going if one.writes_for in gone]
        gone += dropped_writers
        statement = _Statement(replacing, others or Change(), staged)
        if any(name.lower() in (*catalog.queries, *catalog.relations) for name in gone):
            known = list(self.home.statements)
            self.make_plan(catalog, replacing)  # raises before anything is dropped
            self._adopt(without, gone, (), _Statement(replace(NOTHING_REPLACED, entries=replacing.entries)))
            statement = replace(statement, replacing=replace(replacing, entries=()))
            try:
                self._adopt(catalog, (), tables, statement)
            except BaseException:
                # After an interruption the next start declares the remaining statements.
                if not self.home.is_interrupted:
                    self.home.commit(Change(catalog=undo_entries(replacing.entries, known)))
                raise
        else:
            self._adopt(catalog, gone, tables, statement)
        # The queries that write tables and end now have processed their input; write their last results.
        self.forget([one.name for one in going if one.name not in dropped_writers and self.settle(one)])

    def replace_with(
        self,
        catalog: Catalog,
        kept: StoredStatements,
        replaced: list[ReplacedStatement],
        entries: list[dict[str, Any]],
        source: SourceText,
        others: Change,
        staged: StagedChanges,
    ) -> None:
        """Apply CREATE OR REPLACE, and bind all statements that use the replaced definitions again."""
        after = in_force([*self.home.statements, *entries])
        catalog, replacing = with_users(catalog, replaced, after, source)
        self._restore_previous(kept.without(after.keys()))
        said = {(entry.get("kind"), entry["name"].lower()) for entry in entries}
        again = [
            {**after[key], "at": entries[0]["at"], "by": entries[0]["by"], "because": name}
            for key, name in replacing.because.items()
            if key not in said
        ]
        self.change_to(catalog, (), replace(replacing, entries=[*entries, *again]), others, staged)

    def alter_with(
        self,
        catalog: Catalog,
        dropped: Sequence[DroppedName],
        kept: StoredStatements,
        altering: Replacement,
        others: Change,
        staged: StagedChanges,
    ) -> None:
        """Apply ALTER statements, which change query options or add columns to streams."""
        if altering.altered:
            after = in_force([*self.home.statements, *altering.entries])
            self._restore_previous(kept.without(after.keys()))
        self.change_to(catalog, dropped, altering, others, staged)

    def _restore_previous(self, catalog: Catalog) -> None:
        """Run the catalog from before a change first, so that the state of its tasks is restored."""
        if not self.opened:
            self.change_to(catalog, ())
            self.open()

    def commit_tables(self, others: Change | None = None, staged: StagedChanges = NOTHING_STAGED) -> None:
        """Commit new table versions for the rows that arrive from now on.

        Rows that arrived earlier are joined with the old versions. The same journal record has the `staged`
        changes of table rows and the change `others`.
        """
        with self.dispatcher.paused(), self.tables.restore_on_failure():
            self.tables.adopt(staged)
            change = others or Change()
            if self.opened:
                self.dispatcher.admit_handed()
                self._run_tasks(self.plan, self.catalog, change=change)
            elif not self.home.tasks:  # no pending row needs the old table versions
                self.home.commit(replace(change, tables=self.tables.changes()))
            else:
                self.home.commit(change)

    def begin_anew(self, logs: Collection[str], others: Change) -> None:
        """Restart failed queries and streams: they lose their state, and read only rows that arrive now.

        The change `others` is part of the same journal record.
        """
        with self.dispatcher.paused():
            self.dispatcher.admit_handed()
            self._run_tasks(self.plan, self.catalog, logs, others)

    def replan(self) -> None:
        """Plan the catalog again after a backfill changed the journal.

        Call while the driver is paused.
        """
        plan = self.make_plan(self.catalog)
        read_by = exchanges_by_log(self.changes.exchanges(task, plan.graph) for task in plan.tasks)
        for name, stream in self.dispatcher.streams.items():
            stream.need(stream.plan.need, read_by.get(name, ()))
        self.plan = plan
        self._run_tasks(plan, self.catalog)

    def make_plan(self, catalog: Catalog, replacing: Replacement = NOTHING_REPLACED) -> Plan:
        """Return the plan of a catalog, without running it."""
        apart = starts_apart(catalog, self.home, self._can_be_read_again, replacing.logs, replacing.past)
        return self.planner.plan(catalog, query_placements(self.home.tasks), apart)

    def _is_declared(self, name: str) -> bool:
        """Return True if a name is a stream with a source, whose stored rows survive DROP STREAM."""
        return name + ERRORS in self.home.logs

    def with_past(self, catalog: Catalog, replacing: Replacement) -> Replacement:
        """Add to a replacement the restarted queries that read past rows, as the BEGIN of their streams says.

        A changelog whose rows can be emitted again from its state does not restart.
        """
        if not replacing.logs:
            return replacing
        plan = self.make_plan(catalog, replacing)
        kept = [name for name in replacing.tables - replacing.past if table_is_kept(self.plan, plan, name)]
        replacing = replace(replacing, anew=replacing.anew.difference(kept))
        fresh = [
            name
            for name in replacing.logs - replacing.past
            if not (name not in replacing.anew and state_is_kept(self.plan, plan, name))
        ]
        starts = starts_apart(catalog, self.home, self._can_be_read_again, replacing.logs, fresh)
        return replace(replacing, past=replacing.past.union(starts.keys() & set(fresh)))

    def _reject_second_reads(self, replacing: Replacement) -> None:
        """Raise if a change affects a stream or query while its source is read again for a backfill."""
        for name in self.dispatcher.streams:
            stream, again, query = name.partition(AGAIN)
            query = query.removesuffix(")")
            if again and stream in replacing.altered | replacing.moved:
                raise SlicemillError(
                    f"{stream} is being read from the beginning for {query}; change it when SHOW QUERIES "
                    f"no longer says that {query} is backfilling, or DROP QUERY {quote_name(query)} first"
                )
            if again and query in replacing.logs:
                raise SlicemillError(
                    f"{query} is still reading {stream} from the beginning; replace it when SHOW QUERIES no "
                    f"longer says that it is backfilling, or DROP QUERY {quote_name(query)} "
                    "and create it anew"
                )

    def _check_new_sockets(self, diff: CatalogDiff) -> None:
        """Reject new streams from sockets if each read reconnects; warn of existing streams from sockets."""
        if self.dispatcher.keeps_connections:
            return
        moved = [stream for stream in diff.redeclared if stream.name in diff.moved]
        for stream in (*diff.started, *moved):
            if diff.supplies[stream.name] is not Supply.READER or not is_socket(stream.source):
                continue
            if stream.name in diff.moved or not self._is_declared(stream.name):
                raise SlicemillError(
                    f"stream {stream.name} reads a socket, and with --execution jobs each read connects "
                    "anew: lines on their way between two reads would be lost; run with --execution workers, "
                    "or have the sender write files or Kafka"
                )
            _LOGGER.warning(
                "stream %s reads a socket: with --execution jobs each read connects anew, and lines on their "
                "way between two reads are lost; run with --execution workers",
                stream.name,
            )

    def _can_be_read_again(self, stream: Stream) -> bool:
        """Return True if a worker can read the source of a stream a second time, from its first row."""
        return stream.has_past and self._supply(stream) is Supply.READER

    def diff(
        self,
        catalog: Catalog,
        replacing: Replacement = NOTHING_REPLACED,
        dropped: Sequence[str] = (),
        tables: Collection[str] = (),
    ) -> CatalogDiff:
        """Return the difference between the running catalog and a new one. Raise if the change is impossible.

        `dropped` are logs of dropped queries, and `tables` are tables that are dropped or get new rows.
        """
        self._reject_second_reads(replacing)
        replacing, running = self.with_past(catalog, replacing), self.dispatcher.streams
        plan = self.make_plan(catalog, replacing)
        if replacing.altered:
            reject_lost_state(self.plan, plan)
        self._reject_other_tables(catalog)
        failed = {log for task in self.dispatcher.running.tasks for log in task.failed}
        replacing = replace(replacing, anew=replacing.anew | (failed & replacing.logs))
        others = replacing.altered | replacing.moved
        streams = streams_to_read(plan.graph, catalog, self.home, running, others)
        started = [stream for stream in streams if stream.name not in running]
        redeclared = [stream for stream in streams if stream.name in others & running.keys()]
        supplies = {stream.name: self._supply(stream) for stream in (*started, *redeclared)}
        whole = {stream.name: stream.schema.names for stream in streams_with_retention(catalog)}
        needs = merge_projections([*running, *(stream.name for stream in started)], plan.needs, whole)
        replaced_sinks = self._queries_with_new_sink(catalog)
        unread = {v.name for v in views_to_answer(self.catalog)} - {v.name for v in views_to_answer(catalog)}
        tables = {*tables, *self._changed_tables(catalog)}
        return CatalogDiff(
            catalog=catalog,
            plan=plan,
            replacing=replacing,
            tasks=self.changes.diff(plan, catalog, replacing, tables) if self.opened else (),
            streams=streams,
            started=started,
            redeclared=redeclared,
            moved={
                stream.name: running[stream.name].source_change_fields(stream, supplies[stream.name])
                for stream in redeclared
                if stream.name in replacing.moved
            },
            supplies=supplies,
            needs=always_stored(needs, self.home, replacing.widened),
            exchanges=exchanges_by_log(self.changes.exchanges(task, plan.graph) for task in plan.tasks),
            created=missing_logs(
                started, self._new_queries(catalog), self.home, {*replacing.logs, *replacing.widened}
            ),
            dropped=[name for name in (*dropped, *unread) if name in self.home.logs],
            replaced_sinks=replaced_sinks,
            new_sinks=[
                query.name
                for query in catalog.queries.values()
                if query.continuous
                and query.options.sink is not None
                and query.options.table is None
                and (query.name not in self.sinks or query.name in replaced_sinks)
            ],
        )

    def _changed_tables(self, catalog: Catalog) -> Iterator[str]:
        """Yield the tables of a new catalog that are new or whose declaration has changed."""
        for name, relation in catalog.relations.items():
            if isinstance(relation, Table) and self.catalog.relations.get(name) != relation:
                yield relation.name

    def _adopt(
        self, catalog: Catalog, gone: Sequence[str], dropped_tables: Sequence[str], statement: _Statement
    ) -> None:
        """Commit and run a new catalog, and drop the logs named in `gone`."""
        # Start positions in the plan are valid only while no source is read.
        with self._restart_reading(), self.dispatcher.paused():
            tables = {*dropped_tables, *statement.staged.versions}
            diff = self.diff(catalog, statement.replacing, gone, tables)
            _LOGGER.debug("the catalog changes:\n%s", diff)
            # All checks precede the registration, so that an error leaves no half-created query.
            self._check_new_sockets(diff)
            sinks = self._open_sinks(diff)
            with self.tables.restore_on_failure():
                self.tables.take_up(catalog, dropped_tables)
                self.tables.adopt(statement.staged)
                if self.ingest.is_outdated(diff.needs):
                    self.ingest.stop()
                declared = self._commit(diff, statement)
                self._switch(diff, declared, sinks)

    def _commit(self, diff: CatalogDiff, statement: _Statement) -> dict[str, dict[str, Any]]:
        """Commit a new catalog and run its tasks; return the journal fields of streams with new retention."""
        replacing, created = diff.replacing, dict(diff.created)
        with self.home.announcing(), self._registered(diff.started, diff.supplies):
            self.home.announce(created)
            declared = self._changed_retention(diff.streams)
            self.home.announce({}, declared)
            if self.opened and (replacing.logs or replacing.altered or replacing.moved):
                self.dispatcher.admit_handed()
            prepared = self.changes.prepare(diff) if self.opened else None
            self._flush_sinks(diff.replaced_sinks)
            change = replace(
                statement.others,
                created=created,
                catalog=list(replacing.entries),
                widened=dict(replacing.widened),
                streams={
                    name: {**declared.get(name, {}), **diff.moved.get(name, {})}
                    for name in declared.keys() | diff.moved.keys()
                },
            )
            with self._detach_queries(diff.dropped):
                if prepared is not None:
                    columns = self._columns(diff.catalog, replacing)
                    emptied = self._deletes_of_replaced(replacing)
                    self._run(prepared, replace(change, columns=columns, logs=emptied), diff.dropped)
                else:
                    if statement.staged.versions and not self.home.tasks:
                        change = replace(change, tables=self.tables.changes())
                    self.home.commit(without_logs(diff.dropped, self.home, change))
        return declared

    def _switch(
        self, diff: CatalogDiff, declared: Mapping[str, dict[str, Any]], sinks: Mapping[str, Sink]
    ) -> None:
        """Update the running streams, queries and sinks after a new catalog is committed."""
        streams = self.dispatcher.streams
        self._declare(diff.streams, declared)
        for name, fields in diff.moved.items():
            streams[name].moved(diff.supplies[name], fields)
        for name, running in streams.items():
            # A new query reads all rows that arrive from now on, so its columns are stored at once.
            running.need(diff.needs[name], diff.exchanges.get(name, ()))
        for stream in diff.redeclared:
            streams[stream.name].lost()  # the held-back rows are read again, with the new columns
        for query in diff.catalog.queries.values():
            if isinstance(query.query, RelationQuery):
                continue
            if query.name not in self.queries:
                self.queries[query.name] = self.handle(query)
            self.queries[query.name].schema = query.schema
        for name in diff.replaced_sinks:
            self.sinks.remove(name)
        for name, sink in sinks.items():
            self.sinks.add(name, sink)
        self.catalog, self.plan = diff.catalog, diff.plan
        self._end_second_reads()

    def _open_sinks(self, diff: CatalogDiff) -> dict[str, Sink]:
        """Open the sinks of new queries, and of queries that get another sink."""
        found = {}
        for query in diff.catalog.queries.values():
            if query.name in diff.new_sinks and query.options.sink is not None:
                found[query.name] = open_sink(
                    query.options.sink,
                    query.name,
                    query.schema,
                    folder=self.folder,
                    durable=self.home.durable,
                )
        return found

    def _end_second_reads(self) -> None:
        """Stop reading sources a second time for backfills that have ended, and drop the logs of these reads.

        Call while the driver is paused.
        """
        read = {op.stream for node in self.plan.graph.sources if isinstance(op := node.operator, Source)}
        kept = {self.catalog.declared_stream(name).name for name in read if AGAIN in name}
        gone = [name for name in self.home.streams if AGAIN in name and name not in kept]
        running = self.dispatcher.streams
        ended = [running.pop(name) for name in list(running) if AGAIN in name and name not in kept]
        written = {log for task in self.plan.tasks for _, log in task.outputs}
        logs = [
            name
            for name in self.home.logs
            if AGAIN in name and name not in written and not any(name.startswith(one) for one in kept)
        ]
        if gone or logs:
            self.home.commit(Change(dropped_logs=logs, dropped_streams=gone))
        if ended:
            self.dispatcher.forget((), [stream.name for stream in ended])

    @contextmanager
    def _restart_reading(self) -> Iterator[None]:
        """Restart the Spark queries that read sources after the `with` block."""
        try:
            yield
        finally:
            if self.reading:
                self.ingest.start(self.dispatcher.streams, self.poll_ms)

    @contextmanager
    def _registered(self, fresh: Sequence[Stream], supplies: Mapping[str, Supply]) -> Iterator[None]:
        """Register new streams with the driver, and remove them if the `with` block raises."""
        streams = self.dispatcher.streams
        try:
            for stream in fresh:
                streams[stream.name] = RunningStream(
                    stream, self.home, self.mill, self.folder, self.clock, supplies[stream.name]
                )
            yield
        except BaseException:
            for stream in fresh:
                streams.pop(stream.name, None)
            raise

    @contextmanager
    def _detach_queries(self, names: Collection[str]) -> Iterator[None]:
        """Copy the results of dropped queries into their handles, and forget the sinks of the queries.

        The handles read the logs again if the `with` block raises and the queries are not dropped.
        """
        handles = {name: self.queries[name] for name in names if name in self.queries}
        try:
            for query in handles.values():
                query.detach()
            yield
        except BaseException:
            for query in handles.values():
                query.attach()
            raise
        for name in names:
            self.queries.pop(name, None)
            self.sinks.forget(name)

    def _changed_retention(self, declared: Sequence[Stream]) -> dict[str, dict[str, Any]]:
        """Return the changed journal fields of streams whose RETAIN is added or removed."""
        changed = changed_retention(declared, self.home)
        if any(fields[WHOLE] for fields in changed.values()):
            self.dispatcher.admit_handed()  # rows that arrived earlier may lack columns that are now stored
            changed = changed_retention(declared, self.home)
        return changed

    def _declare(self, declared: Sequence[Stream], changed: Mapping[str, dict[str, Any]]) -> None:
        """Update the declarations of running streams, after their change is committed."""
        for stream in declared:
            running = self.dispatcher.streams.get(stream.name)
            if running is not None:
                running.declare(stream, changed.get(stream.name, {}))

    def _supply(self, stream: Stream) -> Supply:
        if not self.read_sources:
            return Supply.PROGRAM
        if stream.name.lower() in self.ingest.frames:
            return Supply.SPARK
        if stream.source == SourceSpec():
            return Supply.PROGRAM
        spool = self.home.source_folder(stream.name)
        return Supply.READER if has_readers(stream, self.folder, spool) else Supply.SPARK

    def _queries_with_new_sink(self, catalog: Catalog) -> list[str]:
        """Return the names of the running queries whose sink or columns a new catalog changes."""
        return [
            name
            for name, query in catalog.queries.items()
            if (known := self.catalog.queries.get(name)) is not None
            and query.name in self.sinks
            and (known.options.sink, known.schema) != (query.options.sink, query.schema)
        ]

    def _reject_other_tables(self, catalog: Catalog) -> None:
        """Raise if a sink stores the rows of a changelog, and the columns or key of the changelog change."""
        for name, query in catalog.queries.items():
            known = self.catalog.queries.get(name)
            if known is None or known.schema == query.schema:
                continue
            if not (known.schema.changelog or query.schema.changelog):
                continue
            index = known.options.sink
            if query.name in self.sinks and index and share_persistent_target(index, query.options.sink):
                other = redact_address(alternative_target(index, query.name))
                raise SlicemillError(
                    f"the sink of {query.name} has what it came to so far, and its columns or key would be "
                    f"others; give it another place, as in WITH (sink = '{other}')"
                )
            own = [one for one in self.sinks.tables_of(query.name) if one != query.name]
            if own:
                raise SlicemillError(
                    f"sink {own[0]} of {query.name} holds a table, whose columns or key would be others; "
                    f"take it away with mill.sinks.remove({own[0]!r}), and add one of the new columns after"
                )

    def _flush_sinks(self, names: Iterable[str]) -> None:
        """Deliver all pending results of sinks that are about to be removed.

        Raises if a sink rejects the results.
        """
        for name in names:
            left = self.sinks.deliver_rest(name)
            if left:
                raise SlicemillError(
                    f"the sink of {name} does not take the {left} rows that it has yet to get: "
                    f"{self.sinks.problem(name)}; try again when it does, or DROP QUERY {name} first"
                )

    def _new_queries(self, catalog: Catalog) -> list[QueryDefinition]:
        """Return the continuous queries of a new catalog that are new or changed."""
        known = self.catalog.queries
        return [one for name, one in catalog.queries.items() if one.continuous and known.get(name) is not one]

    def _deletes_of_replaced(self, replacing: Replacement) -> dict[str, Appended]:
        """Write a delete for each row of each replaced changelog; return the deletes by log."""
        now, durable = self.clock(), self.home.durable
        found = {
            name: deletes_of_all(self.home.logs[name], schema, now, durable)
            for name, schema in replacing.emptied.items()
            if name in self.home.logs
        }
        return {name: deletes for name, deletes in found.items() if deletes is not None}

    def _columns(self, catalog: Catalog, replacing: Replacement) -> dict[str, pa.Schema]:
        """Map each log whose columns change, or whose rows are all deleted, to its new columns."""
        computed: list[QueryDefinition | DerivedStream | ComputedStream] = [
            *self._new_queries(catalog),
            *(one for one in catalog.relations.values() if isinstance(one, (DerivedStream, ComputedStream))),
        ]
        found = {one.name: to_arrow(one.schema) for one in computed if one.name in self.home.logs}
        return {
            name: columns
            for name, columns in found.items()
            if name in replacing.emptied
            or not self.home.logs[name].columns.equals(columns, check_metadata=True)
        }

    def _run_tasks(
        self, plan: Plan, catalog: Catalog, anew: Collection[str] = (), change: Change | None = None
    ) -> None:
        replacing = Replacement(anew=frozenset(anew))
        tasks = self.changes.diff(plan, catalog, replacing)
        diff = CatalogDiff(catalog=catalog, plan=plan, replacing=replacing, tasks=tasks)
        with self.home.announcing():
            self._run(self.changes.prepare(diff), change or Change())

    def _run(self, prepared: PreparedTasks, change: Change, dropped: Sequence[str] = ()) -> None:
        """Commit a change of tasks that also drops logs, and run the tasks of the new plan."""
        tasks = self.changes.commit(prepared, replace(change, dropped_logs=list(dropped)))
        queries = [query for query in prepared.catalog.queries.values() if query.continuous]
        failed = {log: why for task in tasks for log, why in task.failed.items()}
        for name, query in self.queries.items():
            query.error = failed.get(name)
        self.dispatcher.replace(tasks, {query.name: Goal.of(query) for query in queries})
        if prepared.gone:
            self.dispatcher.forget(prepared.gone, ())

    def forget(self, names: Iterable[str]) -> None:
        """Drop the logs of queries. The results stay readable in the handles of the queries."""
        gone = [name for name in names if name in self.home.logs]
        with self._detach_queries(gone):
            self.home.commit(without_logs(gone, self.home, Change()))
