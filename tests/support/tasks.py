"""Units without Spark: logs in memory, programs of any number of subtasks, runs that are cut anywhere."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from slicemill.catalog.catalog import Catalog, Stream, TimestampKind
from slicemill.columns.arrow_schema import is_system_column
from slicemill.columns.order import merge_subtasks
from slicemill.columns.rows import timed_rows, to_table
from slicemill.operators.graph import QueryGraph
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.partitioning import Exchange
from slicemill.plan.placement import choose_placement
from slicemill.plan.tasks import Task, split_into_tasks
from slicemill.runtime.pipeline import RunOutcome, TaskPlan, TaskProgram
from slicemill.runtime.shuffle import PartitionedRows
from slicemill.storage.checkpoints import read_checkpoint, write_checkpoint
from slicemill.time import END
from slicemill.types import Timed
from support.corpus import Event, Row, TimedRow

# How the logs that a task reads are spread over so many subtasks.
Exchanges: TypeAlias = Callable[[Task, QueryGraph, int], Mapping[str, Exchange]]


def exchanges_of(task: Task, graph: QueryGraph, subtasks: int) -> Mapping[str, Exchange]:
    """Those of the placement that a task gets."""
    return choose_placement(task, graph, subtasks).exchanges


class Memory:
    """Logs in memory: what each has got since, with numbers and arrivals, and how far it is complete."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.rows: dict[str, list[tuple[Timed, int, int]]] = defaultdict(list)
        self.complete: dict[str, int] = defaultdict(lambda: -END)

    def feed(self, events: Sequence[Event]) -> None:
        for event in events:
            stream = self.catalog.relation(event.stream)
            assert isinstance(stream, Stream) and event.ts_us is not None
            if event.row is not None:
                rows = self.rows[event.stream]
                rows.append((Timed(event.ts_us, event.row), len(rows), event.arrival_us))
            self.complete[event.stream] = max(self.complete[event.stream], event.ts_us)
            for other in self.catalog.relations.values():
                if isinstance(other, Stream) and other.kind is not TimestampKind.EXTERNAL:
                    self.complete[other.name] = event.arrival_us

    def end(self) -> None:
        for relation in self.catalog.relations.values():
            if isinstance(relation, Stream):
                self.complete[relation.name] = END


def _positions(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table["_ts"].to_pylist(), table["_seq"].to_pylist(), strict=True))


def run_subtasks(
    subtasks: Sequence[TaskProgram], inputs: Mapping[str, pa.Table], complete: Mapping[str, int]
) -> Iterator[list[RunOutcome]]:
    """Run the subtasks of a task, each with its rows.

    Several subtasks get the end of the inputs in a run of its own.

    `subtasks` may be changed between two runs.
    """
    plan = subtasks[0].plan
    parts = {log: spread(table, plan, log) for log, table in inputs.items()}
    ends = {log for log, table in inputs.items() if table.num_rows and complete[log] == END}
    if len(subtasks) > 1 and ends:
        told = {log: inputs[log]["_ts"][-1].as_py() if log in ends else complete[log] for log in inputs}
        yield [program.run({log: parts[log][n] for log in parts}, told) for n, program in enumerate(subtasks)]
        parts = {log: [table.slice(0, 0)] * len(subtasks) for log, table in inputs.items()}
    latest: dict[str, int] = {}
    for program in subtasks:
        latest |= {node_id: max(ts, latest.get(node_id, ts)) for node_id, ts in program.latest.items()}
    yield [
        program.run({log: parts[log][n] for log in parts}, complete, latest=latest)
        for n, program in enumerate(subtasks)
    ]


def spread(table: pa.Table, plan: TaskPlan, log: str) -> list[pa.Table]:
    """The rows of each subtask."""
    if log not in plan.exchanges:
        return [table] * plan.subtasks
    own = pa.schema([field for field in table.schema if not is_system_column(field.name)])
    found = PartitionedRows(plan.exchanges[log], own, [(table, 0)])
    return [found.part(subtask) for subtask in range(plan.subtasks)]


def run_tasks(
    catalog: Catalog,
    events: Sequence[Event],
    tables: Mapping[str, Sequence[Row]],
    seed: int,
    subtasks: int,
    checkpoints: Path | None = None,
) -> dict[str, list[TimedRow]]:
    """The rows of all queries; `seed` says where runs are cut, and which tasks fall behind.

    With a folder for `checkpoints`, every task goes on from one after each of its runs.
    """
    logs = _run(catalog, events, tables, seed, subtasks, checkpoints)
    return {
        key: [(timed.ts, timed.row) for timed, _, _ in logs[query.name]]
        for key, query in catalog.queries.items()
    }


def run_logs(
    catalog: Catalog,
    events: Sequence[Event],
    seed: int,
    subtasks: int,
    checkpoints: Path | None = None,
    exchanges: Exchanges = exchanges_of,
) -> dict[str, list[tuple[Timed, int, int]]]:
    """All rows of all logs, with their numbers and arrivals; `exchanges` of tasks as they are, or others."""
    return dict(_run(catalog, events, {}, seed, subtasks, checkpoints, exchanges))


def run_arrivals(catalog: Catalog, events: Sequence[Event]) -> dict[str, list[int]]:
    """What the rows of all queries say of their arrivals."""
    logs = _run(catalog, events, {}, 0, 1, None)
    return {key: [arrival for _, _, arrival in logs[query.name]] for key, query in catalog.queries.items()}


def _run(
    catalog: Catalog,
    events: Sequence[Event],
    tables: Mapping[str, Sequence[Row]],
    seed: int,
    subtasks: int,
    checkpoints: Path | None,
    exchanges: Exchanges = exchanges_of,
) -> dict[str, list[tuple[Timed, int, int]]]:
    chooser = random.Random(seed)
    graph = share(optimize(build_graph(catalog)), catalog)
    memory = Memory(catalog)
    programs = []
    for task in split_into_tasks(graph):
        plan = TaskPlan(
            task=task, graph=graph, catalog=catalog, tables=tables, exchanges=exchanges(task, graph, subtasks)
        )
        programs.append((task, [TaskProgram(plan, subtask=subtask) for subtask in range(plan.subtasks)]))
    read: dict[tuple[str, str], int] = defaultdict(int)
    schemas = {node.id: node.schema for node in graph}
    for name, node_id in graph.streams.items():
        schemas[name] = graph[node_id].schema
    borders = sorted(chooser.sample(range(len(events) + 1), min(3, len(events))))
    for number, (first, last) in enumerate(zip([0, *borders], [*borders, len(events)], strict=True)):
        memory.feed(events[first:last])
        ended = number == len(borders)
        if ended:
            memory.end()
        for task, parts in programs:
            if not ended and chooser.random() < 0.3:
                continue  # a task that is not picked falls behind
            inputs = {}
            for log in task.inputs:
                new = memory.rows[log][read[task.id, log] :]
                read[task.id, log] = len(memory.rows[log])
                timed, seqs = [row[0] for row in new], [row[1] for row in new]
                inputs[log] = to_table(timed, schemas[log], [row[2] for row in new], seqs)
            complete = {log: memory.complete[log] for log in task.inputs}
            for outcomes in run_subtasks(parts, inputs, complete):
                if checkpoints is not None:
                    for subtask, part in enumerate(parts):
                        files = json.loads(json.dumps(write_checkpoint(checkpoints, part.states)))
                        parts[subtask] = TaskProgram(part.plan, read_checkpoint(checkpoints, files), subtask)
                for _, log in task.outputs:
                    assert [outcome.errors for outcome in outcomes] == [{}] * len(outcomes)
                    made = [outcome.tables[log] for outcome in outcomes]
                    for table in made:
                        assert _positions(table) == sorted(_positions(table))
                    table = merge_subtasks(made)
                    system = (table.column(name).to_pylist() for name in ("_seq", "_arr"))
                    memory.rows[log] += zip(timed_rows(table, schemas[log]), *system, strict=True)
                    # Rows that come in a later run are not before those that are there.
                    positions = [(timed.ts, seq) for timed, seq, _ in memory.rows[log]]
                    assert positions == sorted(positions)
                    memory.complete[log] = min(outcome.watermarks[log] for outcome in outcomes)
    return memory.rows
