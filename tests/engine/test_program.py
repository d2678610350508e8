"""Units set at a time, without Spark: the corpus, cut into runs anywhere, gives the same rows."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest

from slicemill.engine.program import UnitPlan, UnitProgram
from slicemill.engine.rows import timed_rows, to_table
from slicemill.engine.steps import END
from slicemill.esl.catalog import Stream, TimestampKind
from slicemill.execution.operator import Timed
from slicemill.kernels.order import put_together
from slicemill.plan.build import build_graph
from slicemill.plan.graph import QueryGraph
from slicemill.plan.optimize import optimize, share
from slicemill.plan.partitions import cell_count
from slicemill.plan.units import cut
from slicemill.storage.checkpoints import read_checkpoint, write_checkpoint
from support.corpus import Case, Runnable, TimedRow, check_rows, parameters, prepare

# Late tuples are put aside when a stream is read, before the log; a query over tables alone is no unit.
BEYOND_UNITS = ("late", "adhoc")


class Memory:
    """Logs in memory: what each has got since, and how far it is complete."""

    def __init__(self, graph: QueryGraph, runnable: Runnable) -> None:
        self.graph = graph
        self.catalog = runnable.catalog
        self.rows: dict[str, list[tuple[Timed, int, int]]] = defaultdict(list)
        self.complete: dict[str, int] = defaultdict(lambda: -END)

    def feed(self, runnable: Runnable, first: int, last: int) -> None:
        for event in runnable.events[first:last]:
            stream = self.catalog.relation(event.stream)
            assert isinstance(stream, Stream) and event.ts_us is not None
            if event.row is not None:
                rows = self.rows[event.stream]
                rows.append((Timed(event.ts_us, event.row), len(rows), event.arrival_us))
            self.complete[event.stream] = max(self.complete[event.stream], event.ts_us)
            for other in self.catalog.relations.values():
                if isinstance(other, Stream) and other.kind is not TimestampKind.EXTERNAL:
                    self.complete[other.name] = event.arrival_us


def run(runnable: Runnable, seed: int, buckets: int, folder: Path | None = None) -> dict[str, list[TimedRow]]:
    """The rows of all queries; with a folder, every unit goes on from a checkpoint after each of its runs."""
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
                inputs[log] = to_table(
                    [t for t, _, _ in new], schemas[log], [a for _, _, a in new], [seq for _, seq, _ in new]
                )
            outcomes = [
                part.run(inputs, {log: memory.complete[log] for log in unit.inputs}) for part in parts
            ]
            if folder is not None:
                for bucket, part in enumerate(parts):
                    files = json.loads(json.dumps(write_checkpoint(folder, part.states)))
                    parts[bucket] = UnitProgram(part.plan, bucket, read_checkpoint(folder, files))
            for _, log in unit.outputs:
                assert [outcome.errors for outcome in outcomes] == [{}] * len(outcomes)
                for outcome in outcomes:
                    assert outcome.tables[log].equals(put_together([outcome.tables[log]]))
                table: pa.Table = put_together([outcome.tables[log] for outcome in outcomes])
                system = (table.column(name).to_pylist() for name in ("_seq", "_arr"))
                memory.rows[log] += zip(timed_rows(table, schemas[log]), *system, strict=True)
                # Rows that come in a later run are not before those that are there.
                places = [(timed.ts, seq) for timed, seq, _ in memory.rows[log]]
                assert places == sorted(places)
                memory.complete[log] = min(outcome.complete[log] for outcome in outcomes)
    return {
        query: [(timed.ts, timed.row) for timed, _, _ in memory.rows[query]]
        for query in runnable.catalog.queries
    }


@pytest.mark.parametrize("case", parameters(BEYOND_UNITS))
def test_runs_cut_anywhere_and_any_number_of_buckets_give_the_rows_of_the_case(case: Case) -> None:
    runnable = prepare(case)
    one_cell = run(runnable, 1, 1)
    for seed, buckets in ((1, 1), (2, 2), (3, 5), (4, 1)):
        results = run(runnable, seed, buckets)
        for query, expected in runnable.expected.items():
            check_rows(expected, results[query.lower()], f"{query}, seed {seed}, {buckets} cells")
        # Order is the same, also where the case does not ask for one.
        assert repr(results) == repr(one_cell)


@pytest.mark.parametrize("case", parameters(BEYOND_UNITS))
def test_units_that_go_on_from_checkpoints_give_the_same_rows_to_the_bit(case: Case, tmp_path: Path) -> None:
    runnable = prepare(case)
    for seed, buckets in ((5, 1), (6, 3)):
        results = run(runnable, seed, buckets, tmp_path)
        assert repr(results) == repr(run(runnable, seed, buckets))
