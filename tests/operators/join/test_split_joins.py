"""Joins of three and more streams, as joins of two: the rows of one join of all, in the same order."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns.rows import timed_rows, to_table
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.spec import SharedJoin, WindowJoin
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.plan.rules.share_joins import share_joins
from slicemill.plan.rules.split_joins import split_joins
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.time import END
from slicemill.types import Timed

STREAMS = "".join(f"CREATE STREAM {name} (k int, v int) ORDER BY current_time;" for name in "ABCD")
SECOND = 1_000_000

Event = tuple[int, str, tuple[int | None, int]]
events: st.SearchStrategy[Event] = st.tuples(
    st.integers(0, 9), st.sampled_from("ABCD"), st.tuples(st.sampled_from([0, 1, None]), st.integers(0, 3))
)
windows = st.sampled_from(["RANGE 1 SECOND", "RANGE 3 SECONDS", "RANGE 5 SECONDS", "RANGE UNBOUNDED"])


@st.composite
def queries(draw: st.DrawFn) -> str:
    names = draw(st.permutations("ABCD"))[: draw(st.integers(3, 4))]
    pairs = [(x, y) for x in names for y in names if x < y]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=4))
    forms = st.sampled_from(["{}.k = {}.k", "{}.v = {}.k", "{}.v < {}.v", "{}.v > 0 AND {}.k = 1"])
    where = [draw(forms).format(x, y) for x, y in chosen]
    sources = ", ".join(f"{name} [{draw(windows)}]" for name in names)
    items = draw(st.sampled_from(["*", ", ".join(f"{name}.v AS v{name}" for name in names)]))
    return f"SELECT {items} FROM {sources}" + (f" WHERE {' AND '.join(where)}" if where else "")


def results(graph: QueryGraph, text: str, runs: Sequence[Sequence[Event]]) -> list[Timed]:
    catalog = bind(f"{STREAMS} CREATE QUERY q AS {text};").catalog
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    found: list[Timed] = []
    reached: dict[str, int] = dict.fromkeys(task.inputs, -END)
    arrived: dict[str, int] = dict.fromkeys(task.inputs, 0)
    for number, run in enumerate(runs):
        given_ = {}
        for stream in task.inputs:
            mine = [Timed(ts * SECOND, row) for ts, of, row in run if of == stream]
            seqs = range(arrived[stream], arrived[stream] + len(mine))
            given_[stream] = to_table(mine, graph[stream].schema, [timed.ts for timed in mine], seqs)
            arrived[stream] += len(mine)
            reached[stream] = max([reached[stream], *(timed.ts for timed in mine)])
        told: Mapping[str, int] = dict.fromkeys(reached, END) if number == len(runs) - 1 else reached
        outcome = program.run(given_, told)
        assert not outcome.errors
        found += timed_rows(outcome.tables["q"], graph["q"].schema)
    return found


@settings(max_examples=50)
@example(
    "SELECT * FROM A [RANGE 1 SECOND], B [RANGE 1 SECOND], C [RANGE 1 SECOND]",
    [(0, "A", (0, 0)), (0, "A", (0, 0)), (0, "A", (0, 1)), (0, "B", (0, 0)), (0, "C", (0, 0))],
    [2],
)
@given(queries(), st.lists(events, max_size=22), st.lists(st.integers(0, 22), max_size=2))
def test_a_row_of_joins_gives_what_one_join_of_all_streams_gives(
    text: str, arriving: list[Event], cuts: list[int]
) -> None:
    arriving = sorted(arriving, key=lambda event: event[0])
    borders = [0, *sorted(min(c, len(arriving)) for c in cuts), len(arriving)]
    runs = [arriving[a:b] for a, b in itertools.pairwise(borders)]
    catalog = bind(f"{STREAMS} CREATE QUERY q AS {text};").catalog
    whole = optimize(build_graph(catalog))
    split = share_joins(split_joins(whole, catalog), catalog)
    assert not any(isinstance(node.operator, WindowJoin) for node in split)
    assert results(split, text, runs) == results(whole, text, runs)


def test_streams_are_joined_in_an_order_in_which_each_has_a_key() -> None:
    text = "SELECT A.v FROM A, B, C, D WHERE A.k = C.k AND C.v = D.v AND D.k = B.k WINDOW 5 SECONDS"
    catalog = bind(f"{STREAMS} CREATE QUERY q AS {text};").catalog
    split = split_joins(optimize(build_graph(catalog)), catalog)
    joins = [node for node in split if isinstance(node.operator, SharedJoin)]
    assert [node.inputs[1] for node in joins] == ["C", "D", "B"]
    assert all(isinstance(node.operator, SharedJoin) and node.operator.keys[0] for node in joins)
