"""Rows of heavy keys are spread over all subtasks for a time, without any change of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns.arrow_schema import to_arrow
from slicemill.columns.order import merge_subtasks
from slicemill.columns.rows import timed_rows, to_table
from slicemill.operators.join import state as side
from slicemill.operators.join.hashing import hash_keys
from slicemill.operators.subtask import HeavyKey
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.partitioning import by_key
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.runtime.shuffle import PartitionedRows, add_subtask_order
from slicemill.storage.checkpoints import read_checkpoint, write_checkpoint
from slicemill.time import END
from slicemill.types import Timed

SECOND = 1_000_000
SCRIPT = """
CREATE STREAM A (k int, s varchar, v int, ts timestamp) ORDER BY ts;
CREATE STREAM B (k bigint, s varchar, v int, ts timestamp) ORDER BY ts;
CREATE QUERY q AS SELECT A.k, A.v, B.v AS w FROM A [RANGE 3 SECONDS], B [RANGE 2 SECONDS] WHERE {};
"""
CONDITIONS = ["A.k = B.k", "A.k = B.k AND A.s = B.s", "A.s = B.s"]
LONGEST = 3 * SECOND

Row = tuple[int, int, str, int]  # second, key, text, number
Found = list[tuple[int, int, tuple[object, ...]]]

rows = st.lists(
    st.tuples(
        st.integers(0, 9), st.sampled_from([0, 0, 0, 1, 2]), st.sampled_from(["", "x"]), st.integers(0, 9)
    ),
    max_size=16,
)

keys = st.tuples(st.integers(0, 2), st.sampled_from(["", "x"]))


def hash_of(condition: str, k: int, text: str) -> int:
    values = [pa.array([value]) for name, value in (("A.k", k), ("A.s", text)) if name in condition]
    return int(hash_keys([pa.chunked_array([value]) for value in values], 1).hashes[0])


class Subtasks:
    """The subtasks of a task, their keys spread by hand."""

    def __init__(self, condition: str, subtasks: int) -> None:
        catalog = bind(SCRIPT.format(condition)).catalog
        graph = share(optimize(build_graph(catalog)), catalog)
        (task,) = split_into_tasks(graph)
        self.plan = TaskPlan(
            task=task,
            graph=graph,
            catalog=catalog,
            tables={},
            exchanges=by_key(task, graph, subtasks) if subtasks > 1 else {},
        )
        self.programs = [TaskProgram(self.plan, subtask=subtask) for subtask in range(self.plan.subtasks)]
        self.heavy: tuple[HeavyKey, ...] = ()
        self.seen = {"A": 0, "B": 0}
        self.spread = 0  # rows that went to all subtasks

    def run(
        self, new: dict[str, Sequence[Row]], complete: dict[str, int], folder: Path | None, ordered: bool
    ) -> Found:
        parts, plan = {}, self.plan
        for stream, mine in new.items():
            schema = plan.graph[stream].schema
            timed = [Timed(ts * SECOND, (k, s, v, ts * SECOND)) for ts, k, s, v in mine]
            numbers = list(range(self.seen[stream], self.seen[stream] + len(mine)))
            self.seen[stream] += len(mine)
            table = to_table(timed, schema, [one.ts for one in timed], numbers)
            if plan.subtasks == 1:
                parts[stream] = [table]
                continue
            exchange = plan.exchanges[stream]
            stored = add_subtask_order(table, [exchange], schema) if ordered and mine else table
            spread = PartitionedRows(exchange, to_arrow(schema), [(stored, 0)], self.heavy)
            parts[stream] = [spread.part(subtask) for subtask in range(plan.subtasks)]
            self.spread += sum(part.num_rows for part in parts[stream]) - len(mine)
        outcomes = [
            program.run({stream: parts[stream][subtask] for stream in new}, complete, heavy=self.heavy)
            for subtask, program in enumerate(self.programs)
        ]
        if folder is not None:
            states = [read_checkpoint(folder, write_checkpoint(folder, one.states)) for one in self.programs]
            self.programs = [TaskProgram(plan, state, subtask) for subtask, state in enumerate(states)]
        assert not any(outcome.errors for outcome in outcomes)
        found = merge_subtasks([outcome.tables["q"] for outcome in outcomes])
        shown = timed_rows(found, plan.graph["q"].schema)
        return [(one.ts, seq, one.row) for one, seq in zip(shown, found["_seq"].to_pylist(), strict=True)]

    def home(self, k: int, text: str) -> int:
        """The subtask that rows of a key go to."""
        table = to_table([Timed(0, (k, text, 0, 0))], self.plan.graph["A"].schema, [0], [0])
        spread = PartitionedRows(
            self.plan.exchanges["A"], to_arrow(self.plan.graph["A"].schema), [(table, 0)]
        )
        return next(subtask for subtask in range(self.plan.subtasks) if spread.part(subtask).num_rows)

    def change(self, hash_: int, home: int, next_ts: int) -> None:
        """A key that is light becomes heavy, a heavy one begins to fade, one that fades is heavy again."""
        now = [key for key in self.heavy if key.hash == hash_ and key.over > next_ts]
        others = tuple(key for key in self.heavy if key not in now)
        if now and now[0].fades == END:
            self.heavy = (*others, replace(now[0], fades=next_ts, over=next_ts + LONGEST))
        else:
            ended = tuple(replace(key, over=next_ts) for key in now)
            self.heavy = (*others, *ended, HeavyKey(hash_, home, next_ts))


# To shrink an example takes longer than to read one.
@pytest.mark.slow_cpu
@settings(
    max_examples=60,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_whenever_keys_become_heavy_and_light_rows_order_and_numbers_are_those_of_one_subtask(
    data: st.DataObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side, "_SMALL_ROWS", 2)
    condition = data.draw(st.sampled_from(CONDITIONS))
    streams = {name: sorted(data.draw(rows), key=lambda row: row[0]) for name in "AB"}
    one, several = Subtasks(condition, 1), Subtasks(condition, data.draw(st.sampled_from([2, 3, 5])))
    read, reached = {"A": 0, "B": 0}, {"A": -1, "B": -1}
    got: list[Found] = [[], []]
    for last in (False,) * data.draw(st.integers(0, 6)) + (True,):
        new: dict[str, Sequence[Row]] = {}
        for name, all_rows in streams.items():
            upto = len(all_rows) if last else data.draw(st.integers(read[name], len(all_rows)))
            new[name] = all_rows[read[name] : upto]
            read[name] = upto
            reached[name] = max([reached[name], *(row[0] * SECOND for row in new[name])])
        complete = dict.fromkeys(reached, END) if last else dict(reached)
        folder = tmp_path if data.draw(st.booleans()) else None
        for subtasks, found in zip((one, several), got, strict=True):
            found += subtasks.run(new, complete, folder, data.draw(st.booleans()))
        for k, text in data.draw(
            st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["", "x"])), max_size=3)
        ):
            several.change(hash_of(condition, k, text), several.home(k, text), max(reached.values()) + 1)
    assert got[1] == got[0]
    assert sorted((ts, row) for ts, _, row in got[0]) == expected(condition, streams)


def expected(condition: str, streams: dict[str, list[Row]]) -> list[tuple[int, tuple[object, ...]]]:
    """By definition: all pairs of which one is in its stream's window when the other comes."""
    found: list[tuple[int, tuple[object, ...]]] = []
    for ts, k, text, v in streams["A"]:
        for other_ts, other_k, other_text, w in streams["B"]:
            same = "A.k" not in condition or k == other_k
            same &= "A.s" not in condition or text == other_text
            if same and (0 <= other_ts - ts < 3 or 0 <= ts - other_ts < 2):
                found.append((max(ts, other_ts) * SECOND, (k, v, w)))
    return sorted(found)


def test_a_heavy_key_is_stored_in_equal_parts_while_it_is_heavy() -> None:
    subtasks = Subtasks("A.k = B.k", 4)
    subtasks.change(hash_of("A.k = B.k", 0, ""), subtasks.home(0, ""), 0)
    new: dict[str, Sequence[Row]] = {name: [(1, 0, "", n) for n in range(40)] for name in "AB"}
    found = subtasks.run(new, {"A": 2 * SECOND, "B": 2 * SECOND}, None, ordered=False)
    assert len(found) == 40 * 40 and subtasks.spread == 3 * 80
    held = [sum(part.rows for part in state.held()) for p in subtasks.programs for state in p.states.values()]  # type: ignore[attr-defined]
    assert sum(held) == 80 and max(held) <= 24
