"""Write the golden checkpoints: states of every kind, as a version of slicemill has written them.

    PYTHONPATH=src:tests python tests/storage/golden_states.py

writes missing checkpoints to tests/storage/golden and leaves existing checkpoints unchanged: every later
version must read them. A new kind of state, or a new version of a kind, gets a new name here.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aggregate.compiler.comparing import call_of, over, tuples_of
from slicemill import types as t
from slicemill.aggregates.definition import NanKey
from slicemill.aggregates.udf.compiler.layout import INTERPRETER, MACHINE
from slicemill.aggregates.udf.compiler.prepare import prepare as prepare_call
from slicemill.aggregates.udf.compiler.state import UserObject
from slicemill.binder import bind
from slicemill.catalog.expressions import (
    Argument,
    Case,
    Cast,
    ColumnRef,
    ExistsQuery,
    Literal,
    Oldest,
    ScalarQuery,
)
from slicemill.catalog.queries import FrameUnit, LoadBudget, RelationInput, RelationQuery, Window
from slicemill.columns.keys import Keys
from slicemill.columns.ranges import RowRanges
from slicemill.columns.rows import to_table
from slicemill.extensions.classify.policies import BestFeatureFirst, LoadStar, Pruning, Uniform
from slicemill.operators.drop import DropState
from slicemill.operators.join.block import QueryBits
from slicemill.operators.join.spec import AgeLimit, JoinMember
from slicemill.operators.join.state import JoinState
from slicemill.operators.row_step import RowState
from slicemill.operators.temporal.rows import AccuracyPartition, LatestTuple
from slicemill.operators.window.over import WindowEvents, WindowState
from slicemill.operators.window.over_groups import OverGroupState
from slicemill.operators.window.pane_state import MemberState, PaneState
from slicemill.operators.window.running import RunningDistinct, RunningMoments, RunningSum
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.shedding.accuracy import AccuracyReport, AccuracySums, MemoryReport, OriginalRun, RunSample
from slicemill.shedding.memory import NewestTuple
from slicemill.storage.checkpoints import read_checkpoint, write_checkpoint
from slicemill.types import Timed
from slicemill_oracle.operators.coalesce import _Partition
from slicemill_oracle.operators.window_slide import Answer
from support.corpus import CORPUS, prepare, read_case
from support.tasks import Memory

GOLDEN = Path(__file__).parent / "golden"
LISTED = "files.json"

# Corpus cases whose states, half-way through the input, have all kinds that occur in the corpus.
CASES = (
    "changelogs/deduplication",
    "changelogs/emit",
    "changelogs/first_rows",
    "changelogs/groups",
    "classifiers/features_from_two_streams",
    "classifiers/seen_and_predicted",
    "joins/as_of",
    "joins/expires",
    "joins/left_join",
    "joins/three_streams",
    "joins/window_over_a_join",
    "models/composed",
    "models/lettered",
    "models/slides",
    "relations/count_window",
    "relations/count_window_slide",
    "relations/expressions",
    "sessions/set_by_data",
    "streams/derived_in_another_order",
    "temporal/memory",
    "temporal/nulls",
    "unions/slide_over_a_union",
    "views/last_tuple",
    "windows/average_built_in",
    "windows/whole_history",
)

# Queries whose operators store Python objects by key.
BY_ROWS_STREAM = """
CREATE STREAM s (k varchar, i bigint, v double, ts timestamp) ORDER BY ts;
CREATE AGGREGATE width(x double) : double LANGUAGE PYTHON AS 'storage.golden_states:Width';
"""
BY_ROWS = {
    "windows": "SELECT k, avg(v) AS x, max(i) AS m, collect_list(i) AS l "
    "FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k EMIT EARLY EVERY 10 SECONDS",
    "sessions": "SELECT k, sum(i) AS x, min(v) AS m FROM s [SESSION 2 SECONDS] GROUP BY k "
    "EMIT EARLY EVERY 1 SECOND",
    "join": "SELECT a.k, a.n, b.m FROM (SELECT k, max(i) AS n FROM s GROUP BY k) AS a "
    "FULL JOIN (SELECT k, min(v) AS m FROM s WHERE i > 2 GROUP BY k) AS b ON a.k = b.k",
    "ranks": "SELECT k, i, r FROM (SELECT *, rank() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM s) AS t "
    "WHERE r <= 2",
    "ranks-of-a-changelog": "SELECT k, n, r FROM (SELECT k, n, rank() OVER "
    "(PARTITION BY n % 2 ORDER BY n DESC) AS r FROM (SELECT k, max(i) AS n FROM s GROUP BY k) AS x) AS y "
    "WHERE r <= 2",
    "groups-of-a-changelog": "SELECT n % 2 AS odd, collect_list(k) AS l, max(n) AS m FROM "
    "(SELECT k, sum(i) AS n FROM s GROUP BY k) AS x GROUP BY n % 2",
    "closed-windows": "SELECT a.k, a.i, b.i AS j FROM s [RANGE 2 SECONDS CLOSE WHEN i = 9] AS a "
    "FULL JOIN s [RANGE 1 SECOND] AS b ON a.k = b.k AND a.i < b.i",
    "objects": "SELECT k, width(v) AS x FROM s GROUP BY k",
    "objects-in-windows": "SELECT k, width(v) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) AS x FROM s",
}


class Width:
    """User-defined aggregate: compiled until an argument is NULL."""

    low: float
    high: float

    def initialize(self, x):  # type: ignore[no-untyped-def]
        self.low = self.high = 0.0 if x is None else x
        return 0.0

    def iterate(self, x):  # type: ignore[no-untyped-def]
        if x is not None:
            self.low, self.high = min(self.low, x), max(self.high, x)
        return self.high - self.low


def _rows(rows: list[tuple[int, str | None, int, float | None]], first: int) -> pa.Table:
    timed = [Timed(ts, (k, i, v, ts)) for ts, k, i, v in rows]
    columns = (
        t.Column("k", t.VARCHAR),
        t.Column("i", t.BIGINT),
        t.Column("v", t.DOUBLE),
        t.Column("ts", t.TIMESTAMP),
    )
    return to_table(timed, t.Schema(columns), [ts for ts, *_ in rows], range(first, first + len(rows)))


FIRST_ROWS = _rows(
    [
        (1_000_000, "a", 1, 1.5),
        (1_100_000, "b", 2, None),
        (1_200_000, "a", 3, float("nan")),
        (2_500_000, None, 4, -2.0),
        (2_600_000, "c", 5, 4.0),
        (2_700_000, "b", 6, 0.1),
    ],
    0,
)
LATER_ROWS = _rows(
    [
        (3_100_000, "c", 7, 9.0),
        (3_200_000, "d", 8, 0.2),
        (3_300_000, "a", 9, -1.0),
        (5_500_000, "b", 0, 3.0),
        (5_600_000, None, 1, None),
        (9_000_000, "a", 2, 2.0),
    ],
    6,
)


def _table(rows: list[tuple[Timed, int, int]], schema: t.Schema) -> pa.Table:
    timed, seqs, arrivals = ([row[index] for row in rows] for index in range(3))
    return to_table(timed, schema, arrivals, seqs)


def main() -> None:
    for name in CASES:
        for task, states in _states_of(name).items():
            _keep(f"{name.replace('/', '-')}-{task}", states)
    # The second version stores the rows that are still to be examined.
    _keep("classifiers-payloads", _states_of("classifiers/seen_and_predicted")[0])
    # The second version stores the kind of join of each query.
    _keep("joins-kinds", _states_of("joins/three_streams")[0])
    _keep("joins-overlapping", _states_of("joins/three_streams")[0])
    # Earlier versions stored first rows as Python rows.
    for task, states in _states_of("changelogs/first_rows").items():
        _keep(f"several-first-rows-{task}", states)
    # The second version of groups over the whole history has running aggregates.
    for task, states in _states_of("changelogs/groups").items():
        _keep(f"running-figures-{task}", states)
    _keep("running-figures", {"sum": RunningSum(*np.arange(6).reshape(3, 2)), "distinct": _met()})
    # Earlier versions stored sums of doubles and decimals as Python rows.
    moments = RunningMoments(np.array([2]), np.arange(4, dtype=np.uint32), odd={"nan": np.array([1])})
    _keep("running-moments", {"avg": moments})
    # Earlier versions stored all partitions of unbounded and ROWS windows in one table.
    last = RowRanges()
    last.reach(2)
    last.replace(np.array([0, 1]), np.array([2, 1]), pa.table({"ts": [1, 2, 3], "seq": [0, 1, 2]}))
    _keep("over-by-partition", {"over": OverGroupState(running=RunningSum(), last=last)})
    # Earlier versions stored groups over a changelog as Python rows.
    _keep("retracting-groups", _states_of("changelogs/retractions")[2])
    # Earlier versions stored emitted rows and first rows in one table.
    _keep("told-by-number", _states_of("changelogs/groups")[0] | _states_of("changelogs/retractions")[2])
    for case in ("first_rows", "deduplication"):
        for task, states in _states_of(f"changelogs/{case}").items():
            _keep(f"{case}-by-number-{task}", states)
    _keep("by-hand", _by_hand())
    _keep("windows-that-grow", {"window": Window(FrameUnit.RANGE, 12_000_000, 4_000_000, grows=True)})
    _keep("types", {"columns": t.Schema((t.Column("i", t.INT), t.Column("d", t.decimal(6, 2))))})
    _keep("lists", {"columns": t.Schema((t.Column("l", t.list_of(t.INT)),))})
    _keep("changelog", {"columns": t.changelog((t.Column("i", t.INT),), ("i",))})
    _keep("calls", {"input": _call()})
    _keep("unions-of-tables", {"input": _union()})
    _keep("interpreted", {"window": _of_aggregate("median", INTERPRETER)})
    # Earlier versions stored keys in one table, which each checkpoint wrote anew.
    _keep("keys-in-slices", {"keys": Keys.restored([pa.array(["a", "b", None])]), "none": Keys()})
    # Earlier versions stored states of the interpreter only as objects.
    _keep("encoded-states", {"window": _of_aggregate("median", INTERPRETER)})
    _keep("compiled", {"window": _of_aggregate("max", MACHINE)})
    # Earlier versions stored all Python objects of an operator in the head file.
    for query in BY_ROWS:
        _keep(f"by-rows-{query}", _by_rows(query))
        _keep(f"objects-by-key-{query}", _by_rows(query))


def golden_checkpoints() -> dict[str, dict[str, object]]:
    """Return all golden states by the names of their folders."""
    return {path.parent.name: read_golden(path.parent) for path in sorted(GOLDEN.glob(f"*/{LISTED}"))}


def read_golden(folder: Path) -> dict[str, object]:
    return read_checkpoint(folder, json.loads((folder / LISTED).read_text(encoding="utf-8")))


def _keep(name: str, states: dict[str, object]) -> None:
    folder = GOLDEN / name
    if folder.exists() or not states:
        return
    folder.mkdir(parents=True)
    files = write_checkpoint(folder, states)
    (folder / LISTED).write_text(json.dumps(files) + "\n", encoding="utf-8")


def _states_of(name: str) -> dict[int, dict[str, object]]:
    """Return the states of each task of a case after two thirds of its input."""
    runnable = prepare(read_case(CORPUS / f"{name}.test"))
    graph = share(optimize(build_graph(runnable.catalog)), runnable.catalog)
    memory = Memory(runnable.catalog)
    memory.feed(runnable.events[: 2 * len(runnable.events) // 3])
    schemas = {node.id: node.schema for node in graph}
    schemas |= {stream: graph[node_id].schema for stream, node_id in graph.streams.items()}
    found: dict[int, dict[str, object]] = defaultdict(dict)
    for number, task in enumerate(split_into_tasks(graph)):
        program = TaskProgram(
            TaskPlan(task=task, graph=graph, catalog=runnable.catalog, tables=runnable.tables)
        )
        inputs = {log: _table(memory.rows[log], schemas[log]) for log in task.inputs}
        program.run(inputs, {log: memory.complete[log] for log in task.inputs})
        found[number] = program.states
    return found


def _by_rows(query: str) -> dict[str, object]:
    """Return the states of the last task of a query of `BY_ROWS` after the first rows."""
    programs, tables, complete = by_rows_programs(query), {"s": FIRST_ROWS}, {"s": 3_000_000}
    run_programs(programs, tables, complete)
    return programs[-1].states


def by_rows_programs(query: str, states: dict[str, object] | None = None) -> list[TaskProgram]:
    """Return the programs of a query of `BY_ROWS`; the last program starts with these states."""
    catalog = bind(f"{BY_ROWS_STREAM} CREATE QUERY q AS {BY_ROWS[query]};").catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    plans = [TaskPlan(task=task, graph=graph, catalog=catalog, tables={}) for task in split_into_tasks(graph)]
    return [*map(TaskProgram, plans[:-1]), TaskProgram(plans[-1], states)]


def run_programs(
    programs: list[TaskProgram], tables: dict[str, pa.Table], complete: dict[str, int]
) -> list[tuple[Any, ...]]:
    """Return the rows that the last program emits; each program reads the output of the previous programs."""
    for program in programs:
        inputs = {log: tables.get(log, program.empty_input(log)) for log in program.plan.task.inputs}
        outcome = program.run(inputs, {log: complete[log] for log in inputs})
        assert not outcome.errors, outcome.errors
        tables, complete = tables | dict(outcome.tables), complete | dict(outcome.watermarks)
    return [tuple(row.values()) for table in outcome.tables.values() for row in table.to_pylist()]


def _of_aggregate(of_table: str, form: str) -> object:
    """Return the state of an aggregate call with an open slot, whose body aggregates a local table."""
    catalog = bind(f"""CREATE AGGREGATE middle(x real) : real {{ TABLE t(v real);
        INITIALIZE: ITERATE: {{ INSERT INTO t VALUES (x); }}
        TERMINATE: {{ INSERT INTO RETURN SELECT {of_table}(v) FROM t; }} }}""").catalog
    call = call_of(catalog, "middle", [t.DOUBLE], over("RANGE", 6, 2))
    uda = prepare_call(call, catalog)
    assert uda.how.form == form
    state = uda.start()
    uda.run(state, tuples_of([(0, 0, 1.5), (1, 1, None), (3, 0, 2.5)], [t.DOUBLE]))
    return state


def _met() -> RunningDistinct:
    values = Keys.restored([pa.array(["a", "b"])])
    return RunningDistinct(np.array([1, 2]), values, [np.array([0, 2**32]), np.array([2**32 + 1])])


def _call() -> RelationInput:
    """The second version of an input may be a call with arguments."""
    rows = t.Schema((t.Column("x", t.DOUBLE),))
    return RelationInput("f", "r", rows, None, (("a", ColumnRef("x", t.DOUBLE)),))


def _union() -> RelationInput:
    """The third version of an input may have the rows of several queries."""
    rows = t.Schema((t.Column("x", t.DOUBLE),))
    one = RelationQuery((RelationInput("t", "t", rows),), None, (), (), None, (), False, (), None, rows)
    return RelationInput("union", "union", rows, one, more=(one, one))


def _by_hand() -> dict[str, object]:
    """Return states that no case contains: all kinds of expressions, reports, and unanswered requests."""
    column = ColumnRef("x", t.DOUBLE)
    inner = RelationQuery(
        (RelationInput("t", "t", t.Schema((t.Column("x", t.DOUBLE),))),),
        None,
        (),
        (),
        None,
        (),
        False,
        ((Argument("a", t.INT), True),),
        1,
        t.Schema(()),
    )
    residual = Case(
        ((ExistsQuery(inner), Cast(column, t.decimal(6, 2))),),
        ScalarQuery(inner, t.DOUBLE),
        t.DOUBLE,
    )
    window = Window(FrameUnit.RANGE, 5_000_000)
    limit = AgeLimit(LoadBudget(lag_us=1_000_000), 2.0)
    selection = Literal(Decimal("1.50"), t.decimal(3, 2))
    member = JoinMember(
        "q", (window, window), (selection, Oldest("x", t.INT)), residual, (("x", 0, "x"),), limit
    )
    report = AccuracyReport(10, 3)
    report.add(5, AccuracySums(7.0, 10))
    memory_report = MemoryReport(10, 3, capacity=4, runs=2)
    shadow = RunSample(_count=1, _partitions={(NanKey.NAN,): {4: OriginalRun(("a",), 0, 5, 3, 0, 1)}})
    answer = Answer(None)
    events = WindowEvents(
        to_table([Timed(1, (2,))], t.Schema((t.Column("i", t.INT),)), [0]),
        np.array([3]),
        np.array([False]),
        [np.zeros(1, np.int8)],
        [],
    )
    user = np.zeros(1, np.dtype([("object", "O")]))
    user["object"][0] = UserObject("module:Class", {"low": 1.0})
    sheds: Any = {
        "partitions": {("a",): AccuracyPartition(("a",), 1, LatestTuple(("a",), 1, 0, 1, 0))},
        "memory": {"chains": [(("a",), NewestTuple(("a",), 4), [(("a",), 0, 4, 0, 1, 0, 1)])]},
        "shadow": shadow,
        "until": deque([(1, 2)]),
        "report": memory_report,
    }
    return {
        "join": JoinState(query_bits=QueryBits({"q": 0}, {"q": member}), sheds={"q": report}),
        "drop": DropState(report),
        "panes": PaneState(patterns=[frozenset({"q"})], members={"q": MemberState(None)}),
        "over": WindowState([], [], waiting=events),
        "shedding": RowState(sheds, [[(Timed(4, (1.0, "a")), 3, 9)]]),
        "coalescing": RowState({"partitions": {(1,): _Partition((1,))}, "next_end": None}),
        "window": RowState({"waiting": [(1, (2,), [answer])], "running": [{"open": {(1,): answer}}]}),
        "policies": [BestFeatureFirst(True, Pruning()), LoadStar(), Uniform()],
        "user": user,
    }


if __name__ == "__main__":
    main()
