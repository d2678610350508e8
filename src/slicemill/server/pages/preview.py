"""Preview of statements: the plan of their queries, and the operators that running queries would share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from slicemill.api.mill import Mill
from slicemill.binder.script import bind_script
from slicemill.capacity.trial import TrialSamples, measure, read_sample
from slicemill.catalog.catalog import Catalog, QueryDefinition, Stream
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS, with_system_columns
from slicemill.errors import SlicemillError
from slicemill.explain.text import explain_text
from slicemill.extension import called_kinds
from slicemill.lifecycle.catalog_journal import in_force
from slicemill.operators.specs import Source
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.runtime.workers.inline import InlinePool
from slicemill.runtime.workers.sharing import HANDLER
from slicemill.scheduling.capacity import Costs
from slicemill.secrets import PREFIX, redact
from slicemill.server.pages.live_graph import index_of
from slicemill.server.permissions import relations_read_by
from slicemill.sql.errors import EslError, SourceText


@dataclass(frozen=True, slots=True)
class TextPreview:
    """Preview of statements. `shares_with` lists the running queries with some of the same operators."""

    plan: str
    queries: list[str]
    operators: int
    running_already: int
    shares_with: list[str]


def preview(mill: Mill, text: str) -> TextPreview:
    """Plan the continuous queries that a text declares, without running any code in it."""
    source = SourceText(text)
    bound = bind_script(source, mill.catalog, imports=False)
    if bound.diagnostics:
        raise EslError(source, bound.diagnostics)
    names = [one.name for one, _ in bound.statements if isinstance(one, QueryDefinition) and one.continuous]
    if not names:
        return TextPreview("", [], 0, 0, [])
    graph = share(optimize(build_graph(bound.catalog)), bound.catalog)
    wanted = frozenset().union(*(graph.ancestors(name) for name in names))
    own = graph.only(wanted)
    operators = [node.id for node in own if not isinstance(node.operator, Source)]
    running = index_of(mill.running.plan.graph)
    shared = [node for node in operators if node in running.needed_by and node not in names]
    bits = 0
    for node in shared:
        bits |= running.needed_by[node]
    others = [name for name in running.names(bits) if name not in names]
    return TextPreview(explain_text(own), names, len(operators), len(shared), others)


# Cost estimates for queries that do not run yet, measured in a small trial engine over recent rows


_EVERY_S = 0.25
_ROWS = 4_000  # maximum number of rows of each stream
_POLLS = (1, 4, 1, 4, 1, 4)


def costs_of_text(mill: Mill, text: str, rates: Mapping[str, float]) -> Costs:
    """Measure the task costs of the queries that a text declares.

    A trial engine runs for one or two seconds on one core. The running engine is not changed.
    """
    source = SourceText(text)
    bound = bind_script(source, mill.catalog, imports=False)
    if bound.diagnostics:
        raise EslError(source, bound.diagnostics)
    statements = [one for one, _ in bound.statements]
    names = [one.name for one in statements if isinstance(one, QueryDefinition) and one.continuous]
    if not names:
        raise SlicemillError("the text declares no continuous query; write CREATE QUERY name AS SELECT …")
    needed = _upstream_relations(bound.catalog, names)
    before = [
        redact(entry["text"], lambda _: f"${{{PREFIX}NONE}}")  # a trial opens no sink
        for entry in in_force(mill.home.statements).values()
        if entry["name"].lower() in needed or entry["kind"].upper() in {"FUNCTION", *called_kinds()}
    ]
    script = SourceText(";\n".join([*(one.rstrip().removesuffix(";") for one in before), text]))
    asked = {name: rates.get(name, 0.0) or 100.0 for name in mill.running.streams}
    samples = TrialSamples(asked, tables=dict(_sample_streams(mill, needed)))
    measured = measure(InlinePool(1, HANDLER), script, _EVERY_S, samples, lambda *_: None, _POLLS)
    own = [task for task in measured.tasks if any(output.log in names for output in task.outputs)]
    return Costs(measured.job_s, tuple(replace(task, id=f"new: {task.id}") for task in own))


def _upstream_relations(catalog: Catalog, names: Iterable[str]) -> set[str]:
    """Return all relations that queries read, directly or indirectly, in lower case."""
    found: set[str] = set()
    waiting = [name.lower() for name in names]
    while waiting:
        name = waiting.pop()
        statement = catalog.queries.get(name) or catalog.relations.get(name)
        if statement is not None:
            read = {one.lower() for one in relations_read_by(statement, catalog)}
            waiting += read - found
            found |= read
    return found


def _sample_streams(mill: Mill, names: Iterable[str]) -> Iterable[tuple[str, pa.Table]]:
    """Yield sample rows of streams, from their sources if these can be read.

    If a source cannot be read, retained rows are used. In retained rows, columns that no query has needed so
    far are NULL.
    """
    for running in list(mill.running.streams.values()):
        if running.stream.name.lower() in names:
            try:
                yield running.stream.name, read_sample(running.stream, _ROWS)
            except SlicemillError as problem:
                retained = _read_retained_rows(mill, running.stream)
                if not len(retained):
                    raise SlicemillError(f"{problem}; and none are retained") from None
                yield running.stream.name, retained


def _read_retained_rows(mill: Mill, stream: Stream) -> pa.Table:
    log = mill.home.logs[stream.name]
    parts = [with_system_columns(log.columns).empty_table()]
    rows = 0
    for epoch in reversed(log.epochs()):
        if rows >= _ROWS:
            break
        parts.append(log.read(epoch))
        rows += epoch.rows
    found = pa.concat_tables(parts)
    if stream.time_column is not None:  # the time column is stored once, as the row's timestamp
        index = found.schema.get_field_index(stream.time_column)
        kind = found.schema.field(index)
        found = found.set_column(index, kind, found.column(TS).cast(kind.type))
    return found.drop_columns([name for name in (TS, SEQ, ARRIVAL, stream.stamp_column) if name is not None])
