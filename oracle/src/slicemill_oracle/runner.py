"""Runs a script on the reference engine, returning all query results.

Time is virtual. A tuple with an external timestamp arrives at that time; other tuples arrive at a fixed
rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slicemill.aggregates.udf.lookup import evaluate_relation
from slicemill.catalog.catalog import ERRORS, Catalog, Stream, Table, TimestampKind
from slicemill.catalog.queries import RelationQuery
from slicemill.connectors.finite import read_rows
from slicemill.ingest.formats.records import BadRow
from slicemill.operators.graph import QueryGraph
from slicemill.operators.specs import Source
from slicemill.operators.step import relation_rows, view_content
from slicemill.operators.temporal.rows import SheddingCoalesce
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.plan.statement_equality import views_to_answer
from slicemill.shedding.accuracy import AccuracyReport
from slicemill.types import Row, Schema, Timed
from slicemill_oracle.engine import Engine
from slicemill_oracle.graph import OperatorSpec, Spec
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate


@dataclass(frozen=True, slots=True)
class QueryResult:
    name: str
    schema: Schema
    rows: list[Timed]
    shed: AccuracyReport | None = None


@dataclass(frozen=True, slots=True)
class StreamCount:
    """Numbers of all rows, bad rows and late rows of a stream."""

    name: str
    read: int
    bad: int
    late: int


@dataclass(frozen=True, slots=True)
class RunResult:
    queries: list[QueryResult]
    streams: list[StreamCount]
    steps: int


class ScriptFeed:
    """Turns a stream's rows into arrivals, lazily, and counts them."""

    def __init__(self, stream: Stream, folder: Path, interval_us: int) -> None:
        self.stream = stream
        self.rows = 0
        self.bad: list[BadRow] = []
        self._folder = folder
        self._interval_us = interval_us

    def arrivals(self) -> Iterator[Arrival]:
        stream = self.stream
        index = stream.schema.index(stream.time_column) if stream.time_column is not None else None
        external = stream.kind is TimestampKind.EXTERNAL
        at = 0
        for row in read_rows(stream.source, stream.encoded_schema, self._folder):
            if isinstance(row, BadRow):
                self.bad.append(row)
                continue
            ts = row[index] if external and index is not None else None
            if external and not isinstance(ts, int):
                self.bad.append(BadRow(str(row), f"the timestamp {stream.time_column} is NULL"))
                continue
            self.rows += 1
            if isinstance(ts, int) and stream.oldest_us is not None and ts < stream.oldest_us:
                continue
            if isinstance(ts, int):
                at = max(at, ts)
                yield Arrival(at, row, ts)
            else:
                at += self._interval_us
                yield Arrival(at, _insert_timestamp(row, index, at))


def _insert_timestamp(row: Row, index: int | None, at: int) -> Row:
    """Insert the timestamp of an internal stream as a column's value."""
    return row if index is None else (*row[:index], at, *row[index:])


def run_script(catalog: Catalog, folder: Path = Path(), interval_us: int = 1_000) -> RunResult:
    """Run every query of a catalog to the end of its input.

    Ad hoc queries then read the tables and views.
    """
    graph = optimize(build_graph(catalog))
    tables = {
        relation.name: [
            r
            for r in read_rows(relation.source, relation.encoded_schema, folder)
            if not isinstance(r, BadRow)
        ]
        for relation in catalog.relations.values()
        if isinstance(relation, Table)
    }
    specs = translate(graph, catalog, tables)
    engine = Engine(specs)
    feeds = [ScriptFeed(stream, folder, interval_us) for stream in _read_streams(graph, catalog)]
    for feed in feeds:
        engine.feed(feed.stream.name, feed.arrivals())
    engine.run_until_idle()
    _feed_errors(engine, graph, feeds)
    engine.run()
    queries = []
    for query in catalog.queries.values():
        if isinstance(query.query, RelationQuery):
            rows = answer(query.query, catalog, tables, engine)
            queries.append(QueryResult(query.name, query.schema, [Timed(0, row) for row in rows]))
        else:
            shed = _shedding_report(specs, graph, query.name)
            queries.append(QueryResult(query.name, query.schema, engine.results(query.name), shed))
    counts = [
        StreamCount(f.stream.name, f.rows + len(f.bad), len(f.bad), engine.late_rows(f.stream.name))
        for f in feeds
    ]
    return RunResult(queries, counts, engine.steps)


def answer(
    query: RelationQuery, catalog: Catalog, tables: Mapping[str, Sequence[Row]], engine: Engine
) -> list[Row]:
    """Answer an ad hoc query after all streams have ended.

    Views have the rows that are left in their windows.
    """
    known = dict(tables)
    for view in views_to_answer(catalog):
        rows = engine.results(view.name)
        known[view.name] = view_content(view, rows, rows[-1].ts if rows else 0)
    return evaluate_relation(query, catalog, lambda name: relation_rows(name, catalog, known))


def _shedding_report(specs: Sequence[Spec], graph: QueryGraph, query: str) -> AccuracyReport | None:
    """Return the load-shedding report of a query with a budget."""
    behind = graph.ancestors(query)
    operators = [s.operator for s in specs if isinstance(s, OperatorSpec) and s.name in behind]
    return next((one.report for one in operators if isinstance(one, SheddingCoalesce)), None)


def _read_streams(graph: QueryGraph, catalog: Catalog) -> list[Stream]:
    """Return the declared streams that the graph reads, directly or as late or error stream."""
    wanted = [node.operator.stream for node in graph.sources if isinstance(node.operator, Source)]
    found = {stream.name: stream for stream in map(catalog.declared_stream, wanted)}
    return list(found.values())


def _feed_errors(engine: Engine, graph: QueryGraph, feeds: list[ScriptFeed]) -> None:
    """Feed unreadable rows to the error streams, after all input was read."""
    for feed in feeds:
        name = feed.stream.name + ERRORS
        if name in graph.nodes:
            engine.feed(name, [Arrival(engine.now, (bad.raw, bad.reason)) for bad in feed.bad])
