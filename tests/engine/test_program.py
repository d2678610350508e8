"""Units set at a time, without Spark: the corpus, cut into runs anywhere, gives the same rows."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace

import pyarrow as pa
import pytest

from slicemill.engine.program import UnitPlan, UnitProgram
from slicemill.engine.rows import timed_rows, to_table
from slicemill.engine.steps import END
from slicemill.esl.catalog import Stream, TimestampKind
from slicemill.execution.operator import Timed
from slicemill.plan.build import build_graph
from slicemill.plan.graph import QueryGraph
from slicemill.plan.optimize import optimize, share
from slicemill.plan.partitions import cell_count
from slicemill.plan.units import cut
from slicemill.storage.chunk import merge_sorted
from support.corpus import Case, Runnable, TimedRow, check_rows, parameters, prepare

# Late tuples are put aside when a stream is read, before the log; a query over tables alone is no unit.
BEYOND_UNITS = ("late", "adhoc")


class Memory:
    """Logs in memory: what each has got since, and how far it is complete."""

    def __init__(self, graph: QueryGraph, runnable: Runnable) -> None:
        self.graph = graph
        self.catalog = runnable.catalog
        self.rows: dict[str, list[tuple[Timed, int]]] = defaultdict(list)
        self.complete: dict[str, int] = defaultdict(lambda: -END)

    def feed(self, runnable: Runnable, first: int, last: int) -> None:
        for event in runnable.events[first:last]:
            stream = self.catalog.relation(event.stream)
            assert isinstance(stream, Stream) and event.ts_us is not None
            if event.row is not None:
                self.rows[event.stream].append((Timed(event.ts_us, event.row), event.arrival_us))
            self.complete[event.stream] = max(self.complete[event.stream], event.ts_us)
            for other in self.catalog.relations.values():
                if isinstance(other, Stream) and other.kind is not TimestampKind.EXTERNAL:
                    self.complete[other.name] = event.arrival_us


def run(runnable: Runnable, seed: int, buckets: int) -> dict[str, list[TimedRow]]:
    chooser = random.Random(seed)
    graph = share(optimize(build_graph(runnable.catalog)), runnable.catalog)
    memory = Memory(graph, runnable)
    programs = []
    for unit in cut(graph):
        count = cell_count(unit, graph, buckets)
        plan = UnitPlan(unit, graph, runnable.catalog, runnable.tables, count)
        programs.append((unit, [UnitProgram(plan, bucket) for bucket in range(count)]))
    read: dict[tuple[str, str], int] = defaultdict(int)
    schemas = {node.id: node.schema for node in graph}
    for name, node_id in graph.streams.items():
        schemas[name] = graph[node_id].schema
    borders = sorted(chooser.sample(range(len(runnable.events) + 1), min(3, len(runnable.events))))
    for first, last in zip([0, *borders], [*borders, len(runnable.events)], strict=True):
        memory.feed(runnable, first, last)
        ended = last == len(runnable.events) and first in ([0, *borders][-1],)
        if ended:
            for relation in runnable.catalog.relations.values():
                if isinstance(relation, Stream):
                    memory.complete[relation.name] = END
        for unit, parts in programs:
            if not ended and chooser.random() < 0.3:
                continue  # a unit that is not picked falls behind
            inputs = {}
            for log in unit.inputs:
                new = memory.rows[log][read[unit.id, log] :]
                read[unit.id, log] = len(memory.rows[log])
                inputs[log] = to_table([t for t, _ in new], schemas[log], [a for _, a in new])
            outcomes = [
                part.run(inputs, {log: memory.complete[log] for log in unit.inputs}) for part in parts
            ]
            for _, log in unit.outputs:
                assert [outcome.errors for outcome in outcomes] == [{}] * len(outcomes)
                table: pa.Table = merge_sorted([outcome.tables[log] for outcome in outcomes])
                rows = timed_rows(table, schemas[log])
                memory.rows[log] += zip(rows, table.column("_arr").to_pylist(), strict=True)
                memory.complete[log] = min(outcome.complete[log] for outcome in outcomes)
    return {
        query: [(timed.ts, timed.row) for timed, _ in memory.rows[query]]
        for query in runnable.catalog.queries
    }


@pytest.mark.parametrize("case", parameters(BEYOND_UNITS))
def test_runs_cut_anywhere_and_any_number_of_buckets_give_the_rows_of_the_case(case: Case) -> None:
    runnable = prepare(case)
    for seed, buckets in ((1, 1), (2, 2), (3, 5), (4, 1)):
        results = run(runnable, seed, buckets)
        for query, whole in runnable.expected.items():
            # Between buckets, rows of the same time come in any order.
            expected = whole if buckets == 1 else replace(whole, ordered=False)
            check_rows(expected, results[query.lower()], f"{query}, seed {seed}, {buckets} buckets")
