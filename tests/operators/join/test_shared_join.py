"""Joins that share slices: whatever the set of queries, each gives what it gives alone, and what SQL says.

phases    0        1             2
runs      | |  |   |    |        |  |    |
q0        ------------------------
q1                 ----------------------
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.columns.order import merge_subtasks
from slicemill.columns.rows import timed_rows, to_table
from slicemill.operators.join import state as side
from slicemill.operators.join import step as shared
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.plan.rules.share_joins import share_joins
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.storage.checkpoints import read_checkpoint, write_checkpoint
from slicemill.time import END
from slicemill.types import Timed
from support.oracle import Oracle
from support.tasks import exchanges_of, run_subtasks

STREAMS = """
CREATE STREAM A (k int, s varchar, d double, v int, ts timestamp) ORDER BY ts;
CREATE STREAM B (k bigint, s varchar, d double, v int, ts timestamp) ORDER BY ts;
"""
NAN = float("nan")
SECOND = 1_000_000

# A moment, a stream and a row without its timestamp.
Event = tuple[int, str, tuple[object, ...]]
Rows = dict[str, list[tuple[int, tuple[object, ...]]]]

keys = st.one_of(st.integers(0, 2), st.none())
rows = st.tuples(
    keys,
    st.sampled_from(["", "a", "ä", "a text of more than eight bytes", None]),
    st.sampled_from([0.0, -0.0, 1.5, NAN, None]),
    st.one_of(st.integers(-2, 3), st.none()),
)
events: st.SearchStrategy[Event] = st.tuples(st.integers(0, 14), st.sampled_from("AB"), rows)

windows = st.sampled_from(
    ["RANGE 1 SECOND", "RANGE 3 SECONDS", "RANGE 6 SECONDS", "RANGE UNBOUNDED", "ROWS 1", "ROWS 3"]
)
conditions = st.sampled_from(["A.k = B.k", "A.s = B.s", "A.d = B.d", "B.k = A.k AND A.s = B.s", ""])
selections = st.sampled_from(
    ["", "A.v > 0", "B.v > 0", "A.v > 0 AND B.v < 2", "A.s LIKE 'a%'", "B.k % 2 = 0"]
)
residuals = st.sampled_from(["", "A.v < B.v", "A.v <> B.k", "A.v + B.v > 1 AND A.d < B.d"])


kinds = st.sampled_from(["", "", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI"])
lengths = st.sampled_from(["RANGE 1 SECOND", "RANGE 3 SECONDS", "RANGE 6 SECONDS"])


@st.composite
def queries(draw: st.DrawFn) -> str:
    where = [part for part in (draw(conditions), draw(selections), draw(residuals)) if part]
    kind = draw(kinds)
    if kind:
        return _with_unmatched_rows(draw, kind, where)
    items = draw(st.sampled_from(["A.k, B.v", "A.s, B.d, A.ts", "B.k + 1, A.v", "*"]))
    sql = f"SELECT {items} FROM A [{draw(windows)}], B [{draw(windows)}]"
    return f"{sql} WHERE {' AND '.join(where)}" if where else sql


def _with_unmatched_rows(draw: st.DrawFn, kind: str, on: Sequence[str]) -> str:
    left = kind in ("SEMI", "ANTI")
    items = draw(st.sampled_from(["A.k", "A.s, A.ts", "*"] if left else ["A.k, B.v", "A.s, B.d, A.ts", "*"]))
    sql = f"SELECT {items} FROM A [{draw(lengths)}] {kind} JOIN B [{draw(lengths)}]"
    sql += f" ON {' AND '.join(on) or 'true'}"
    where = draw(st.sampled_from(["", "A.v > 0", "A.k IS NULL OR A.k < 2"]))
    if where or left:
        return f"{sql} WHERE {where}" if where else sql
    where = draw(st.sampled_from(["", "B.v IS NULL", "A.v IS NOT NULL AND B.v > 0"]))
    return f"{sql} WHERE {where}" if where else sql


@dataclass(frozen=True)
class Phase:
    """The queries there are, by name, and what arrives run by run."""

    queries: Mapping[str, str]
    runs: Sequence[Sequence[Event]]


@st.composite
def histories(draw: st.DrawFn) -> list[Phase]:
    known = {
        f"q{number}": text for number, text in enumerate(draw(st.lists(queries(), min_size=1, max_size=5)))
    }
    arriving = sorted(draw(st.lists(events, max_size=24)), key=lambda event: event[:2])
    phases: list[Phase] = []
    count = draw(st.integers(1, 3))
    for number in range(count):
        there = draw(st.sets(st.sampled_from(sorted(known)), min_size=1)) if count > 1 else set(known)
        cuts = sorted(draw(st.lists(st.integers(0, len(arriving)), max_size=3)))
        end = len(arriving) if number == count - 1 else (cuts or [0])[-1]
        borders = [0, *(c for c in cuts if c <= end), end]
        runs = [arriving[a:b] for a, b in itertools.pairwise(borders)]
        phases.append(Phase({name: known[name] for name in sorted(there)}, runs))
        arriving = arriving[end:]
    return phases


def catalog_of(named: Mapping[str, str]) -> Catalog:
    return bind(STREAMS + "".join(f"CREATE QUERY {name} AS {text};" for name, text in named.items())).catalog


def tables(run: Sequence[Event], catalog: Catalog, seen: Mapping[str, int]) -> dict[str, pa.Table]:
    """What comes in a run, numbered from what was `seen` of each stream before."""
    made = {}
    for stream in "AB":
        mine = [Timed(ts * SECOND, (*row, ts * SECOND)) for ts, of, row in run if of == stream]
        relation = catalog.relation(stream)
        assert relation is not None
        numbers = range(seen[stream], seen[stream] + len(mine))
        made[stream] = to_table(mine, relation.schema, [timed.ts for timed in mine], list(numbers))
    return made


class Machine:
    """Units of a graph, as tasks run them; state goes through storage when `folder` is given."""

    def __init__(self, subtasks: int, sharing: bool) -> None:
        self.subtasks = subtasks if sharing else 1
        self.sharing = sharing
        self.catalog: Catalog
        self.tasks: list[list[TaskProgram]] = []
        self.results: Rows = {}
        self.seen = {"A": 0, "B": 0}  # rows of each stream

    def plan(self, named: Mapping[str, str], folder: Path | None = None) -> None:
        """Go on with these queries: tasks that were there keep their state."""
        self.catalog = catalog_of(named)
        graph = optimize(build_graph(self.catalog))
        graph = share_joins(graph, self.catalog) if self.sharing else graph
        kept = {
            (subtasks[0].plan.task.id, number): _stored(program, folder)
            for subtasks in self.tasks
            for number, program in enumerate(subtasks)
        }
        self.tasks = []
        for task in split_into_tasks(graph):
            plan = TaskPlan(
                task=task,
                graph=graph,
                catalog=self.catalog,
                tables={},
                exchanges=exchanges_of(task, graph, self.subtasks),
            )
            self.tasks.append(
                [TaskProgram(plan, kept.get((task.id, subtask)), subtask) for subtask in range(plan.subtasks)]
            )
        self.results |= {name: [] for name in named if name not in self.results}

    def run(self, run: Sequence[Event], complete: Mapping[str, int]) -> None:
        given = tables(run, self.catalog, self.seen)
        self.seen = {stream: self.seen[stream] + table.num_rows for stream, table in given.items()}
        found: dict[str, list[tuple[int, tuple[object, ...]]]] = {}
        for subtasks in self.tasks:
            plan = subtasks[0].plan
            runs = run_subtasks(subtasks, {log: given[log] for log in plan.task.inputs}, complete)
            for outcomes in runs:
                assert not any(outcome.errors for outcome in outcomes)
                for node_id, log in plan.task.outputs:
                    table = merge_subtasks([outcome.tables[log] for outcome in outcomes])
                    new = [(t.ts, t.row) for t in timed_rows(table, plan.graph[node_id].schema)]
                    assert all(ts >= 0 for ts, _ in new)
                    found.setdefault(log, []).extend(new)
        for log, new in found.items():
            self.results[log] += new


def _stored(program: TaskProgram, folder: Path | None) -> Mapping[str, object]:
    states = program.states
    return states if folder is None else read_checkpoint(folder, write_checkpoint(folder, states))


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """A few rows are many here, so that slices are merged and written anew, and pairs come in blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side, "_SMALL_ROWS", 2)
        patch.setattr(shared, "PAIRS_PER_BLOCK", 3)
        yield


def _completeness(phases: Sequence[Phase]) -> list[dict[str, int]]:
    """How far streams are complete after each run: by what has come, in the end for good."""
    reached = {"A": -END, "B": -END}
    told = []
    for phase in phases:
        for run in phase.runs:
            for ts, stream, _ in run:
                reached[stream] = ts * SECOND
            told.append(dict(reached))
    told[-1] = dict.fromkeys(reached, END)
    return told


@pytest.mark.slow_cpu
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), st.sampled_from([1, 2, 5]), st.booleans())
def test_each_of_any_set_of_queries_gives_what_it_gives_alone_from_when_it_came(
    tmp_path: Path, phases: list[Phase], subtasks: int, stored: bool
) -> None:
    folder = tmp_path if stored else None
    together = Machine(subtasks, sharing=True)
    alone: dict[str, Machine] = {}
    complete = iter(_completeness(phases))
    for phase in phases:
        together.plan(phase.queries, folder)
        for name in list(alone):
            if name not in phase.queries:
                # Should it come back, it is another query, and its results start anew.
                _same(together.results.pop(name), alone.pop(name).results[name])
        for name, text in phase.queries.items():
            if name not in alone:
                together.results[name] = []
                alone[name] = Machine(1, sharing=False)
                alone[name].plan({name: text})
        for run in phase.runs:
            told = next(complete)
            together.run(run, told)
            for machine in alone.values():
                machine.run(run, told)
    for name, machine in alone.items():
        _same(together.results[name], machine.results[name])


def _same(got: list[tuple[int, tuple[object, ...]]], expected: list[tuple[int, tuple[object, ...]]]) -> None:
    """The same rows in the same order."""
    assert [repr(pair) for pair in got] == [repr(pair) for pair in expected]


def _machine(named: Mapping[str, str], runs: Sequence[Sequence[Event]], complete: int) -> Machine:
    machine = Machine(1, sharing=True)
    machine.plan(named)
    for run in runs:
        machine.run(run, {"A": complete, "B": complete})
    return machine


def _held(machine: Machine) -> int:
    states = [
        state for subtasks in machine.tasks for program in subtasks for state in program.states.values()
    ]
    return sum(held.rows for state in states if isinstance(state, shared.JoinState) for held in state.held())


def _steady(seconds: int) -> list[Event]:
    """A tuple of each stream every second, of which one in five has a positive value."""
    return [(ts, of, (ts % 3, "a", 0.0, int(ts % 5 == 0))) for ts in range(seconds) for of in "AB"]


def test_sharing_stores_what_the_longest_window_stores_alone() -> None:
    longest = "SELECT A.v, B.v FROM A [RANGE 20 SECONDS], B [RANGE 20 SECONDS] WHERE A.k = B.k"
    others = {
        f"q{n}": f"SELECT A.k FROM A [RANGE {n} SECONDS], B [RANGE 7 SECONDS] WHERE A.k = B.k AND A.v < {n}"
        for n in range(1, 20)
    }
    runs = [[event] for event in _steady(60)]
    alone = _machine({"longest": longest}, runs, 59 * SECOND)
    together = _machine({"longest": longest, **others}, runs, 59 * SECOND)
    assert _held(together) == _held(alone) <= 2 * 20 * (1 + 1 / 8) + 2


def test_a_row_leaves_when_no_query_that_wants_it_can_reach_it() -> None:
    """Theorem 6: of the long window only selected rows stay, as in slices behind a selection."""
    named = {
        "short": "SELECT A.v, B.v FROM A [RANGE 5 SECONDS], B [RANGE 5 SECONDS] WHERE A.k = B.k",
        "long": "SELECT A.v, B.v FROM A [RANGE 100 SECONDS], B [RANGE 100 SECONDS] "
        "WHERE A.k = B.k AND A.v > 0 AND B.v > 0",
    }
    machine = Machine(1, sharing=True)
    machine.plan(named)
    for event in _steady(100):
        machine.run([event], {"A": event[0] * SECOND, "B": event[0] * SECOND})
    needed = 2 * (100 // 5 + 5 * 4 // 5)
    assert needed - 4 <= _held(machine) <= needed * 4 / 3 + 4


def test_a_query_that_fails_stops_alone() -> None:
    machine = Machine(1, sharing=True)
    machine.plan(
        {
            "good": "SELECT A.v FROM A [RANGE 9 SECONDS], B [RANGE 9 SECONDS] WHERE A.k = B.k",
            "selection": "SELECT A.v FROM A [RANGE 9 SECONDS], B [RANGE 9 SECONDS] "
            "WHERE A.k = B.k AND 6 / A.v > 1",
            "pair": "SELECT A.v FROM A [RANGE 9 SECONDS], B [RANGE 9 SECONDS] "
            "WHERE A.k = B.k AND 6 / (A.v - B.v) > 1",
            "same_pair_later": "SELECT A.v FROM A [RANGE 1 SECOND], B [RANGE 1 SECOND] "
            "WHERE A.k = B.k AND 6 / (A.v - B.v) > 1",
        }
    )
    ((program,),) = machine.tasks
    run: list[Event] = [(1, "A", (1, "a", 0.0, 0)), (3, "B", (1, "a", 0.0, 0))]
    outcome = program.run(tables(run, machine.catalog, machine.seen), {"A": END, "B": END})
    assert set(outcome.errors) == {"selection", "pair"}
    assert {log: table.num_rows for log, table in outcome.tables.items()} == {"good": 1, "same_pair_later": 0}


PLAIN = """
CREATE STREAM A (k int, v int) ORDER BY current_time;
CREATE STREAM B (k int, v int) ORDER BY current_time;
"""


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 3, 8]),
            st.sampled_from([2, 8]),
            st.sampled_from(["A.k = B.k", "A.k = B.v", "A.k < B.k"]),
            st.sampled_from(["", " AND A.v > 2", " AND B.v > 2 AND A.v < 6"]),
        ),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.tuples(st.sampled_from("AB"), keys, st.integers(0, 9)), max_size=20),
    st.integers(0, 20),
)
def test_any_set_of_joins_gives_what_sql_gives_over_the_finished_input(
    shapes: list[tuple[int, int, str, str]], arriving: list[tuple[str, int | None, int]], border: int
) -> None:
    script = PLAIN + "".join(
        f"CREATE QUERY q{n} AS SELECT A.k, A.v, B.v AS w FROM A [RANGE {a} SECONDS], B [RANGE {b} SECONDS] "
        f"WHERE {on}{where};"
        for n, (a, b, on, where) in enumerate(shapes)
    )
    catalog = bind(script).catalog
    graph = share_joins(optimize(build_graph(catalog)), catalog)
    streams = {
        name: [(ts * SECOND, (k, v)) for ts, (of, k, v) in enumerate(arriving) if of == name] for name in "AB"
    }
    oracle = Oracle(catalog, streams, {})
    for task in split_into_tasks(graph):
        program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
        found: dict[str, list[tuple[int, tuple[object, ...]]]] = {log: [] for _, log in task.outputs}
        for first, end, told in ((-1, border * SECOND, border * SECOND), (border * SECOND, END, END)):
            given_ = {}
            for name, tuples in streams.items():
                new = [Timed(*pair) for pair in tuples if first <= pair[0] < end]
                given_[name] = to_table(new, graph[name].schema, [0] * len(new))
            outcome = program.run(given_, {"A": told, "B": told})
            for node_id, log in task.outputs:
                found[log] += [tuple(t) for t in timed_rows(outcome.tables[log], graph[node_id].schema)]
        for log, got in found.items():
            assert sorted(map(repr, got)) == sorted(map(repr, oracle.rows(log)))


def test_masks_grow_and_shrink_with_the_number_of_queries() -> None:
    def named(numbers: range) -> dict[str, str]:
        return {
            f"q{n}": f"SELECT A.v, B.v FROM A [RANGE {n % 7 + 1} SECONDS], B [RANGE 4 SECONDS] "
            f"WHERE A.k = B.k AND A.v >= {n % 3 - 1}"
            for n in numbers
        }

    together = Machine(1, sharing=True)
    alone = {name: Machine(1, sharing=False) for name in ("q1", "q69", "q139")}
    events = _steady(40)
    for phase, numbers in enumerate((range(2), range(70), range(140), range(139, 140))):
        together.plan(named(numbers))
        for name, machine in alone.items():
            if name in named(numbers) and not machine.tasks:
                machine.plan({name: named(numbers)[name]})
        for event in events[20 * phase : 20 * phase + 20]:
            told = {"A": event[0] * SECOND, "B": event[0] * SECOND}
            together.run([event], told)
            for name, machine in alone.items():
                if name in named(numbers):
                    machine.run([event], told)
    for name, machine in alone.items():
        assert machine.results[name]
        _same(together.results[name], machine.results[name])
