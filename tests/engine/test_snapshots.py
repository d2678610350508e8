"""A snapshot of a state stays as it was while the operators go on.

Kernels change arrays in place. A table of a state that lay over such an array would change behind the thread
that writes it.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict

import pytest

from slicemill.codec.encoder import stream_of
from slicemill.columns.rows import timed_rows, to_table
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.storage.checkpoints import EncodedStates, encode_states
from storage.golden_states import CASES
from support.corpus import CORPUS, prepare, read_case
from support.tasks import Memory

RUNS = 4
SLOW = ("models/lettered", "models/slides")  # their code takes seconds to compile


def checksum(snapshot: EncodedStates) -> int:
    found = zlib.crc32(json.dumps(snapshot.encoded.tree).encode())
    tables = [stream_of(slice_.table) for slice_ in snapshot.slices]
    for buffer in (*snapshot.encoded.buffers(), *tables):
        found = zlib.crc32(buffer, found)
    return found


@pytest.mark.parametrize("name", [name for name in CASES if name not in SLOW])
def test_a_snapshot_stays_as_it_was_while_the_task_runs(name: str) -> None:
    runnable = prepare(read_case(CORPUS / f"{name}.test"))
    graph = share(optimize(build_graph(runnable.catalog)), runnable.catalog)
    memory = Memory(runnable.catalog)
    schemas = {node.id: node.schema for node in graph}
    schemas |= {stream: graph[node_id].schema for stream, node_id in graph.streams.items()}
    programs = [
        TaskProgram(TaskPlan(task=task, graph=graph, catalog=runnable.catalog, tables=runnable.tables))
        for task in split_into_tasks(graph)
    ]
    read: dict[tuple[str, str], int] = defaultdict(int)
    taken: list[tuple[EncodedStates, int]] = []
    events = runnable.events
    for number in range(RUNS):
        memory.feed(events[len(events) * number // RUNS : len(events) * (number + 1) // RUNS])
        for program in programs:
            task, inputs = program.plan.task, {}
            for log in task.inputs:
                new = memory.rows[log][read[task.id, log] :]
                read[task.id, log] = len(memory.rows[log])
                timed, seqs, arrivals = ([row[index] for row in new] for index in range(3))
                inputs[log] = to_table(timed, schemas[log], arrivals, seqs)
            outcome = program.run(inputs, {log: memory.complete[log] for log in task.inputs})
            for _, log in task.outputs:
                if (table := outcome.tables.get(log)) is not None:
                    system = (table.column(column).to_pylist() for column in ("_seq", "_arr"))
                    memory.rows[log] += zip(timed_rows(table, schemas[log]), *system, strict=True)
                    memory.complete[log] = outcome.watermarks[log]
            snapshot = encode_states(program.states)
            taken.append((snapshot, checksum(snapshot)))
    assert [checksum(snapshot) for snapshot, _ in taken] == [then for _, then in taken]
