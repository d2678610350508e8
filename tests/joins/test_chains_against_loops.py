"""Outer, semi and anti joins of three and four streams: both engines against nested loops."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from joins.chained import DECLARED, SECOND, DrawnChain, Rows, Streams, chain_sets, streams
from joins.playing import Scene, chain_scenes
from joins.playing import check as check_scene
from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.columns.rows import timed_rows, to_table
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.time import END
from slicemill.types import Timed
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate


def by_reference(catalog: Catalog, given_: Streams, queries: int) -> list[Rows]:
    engine = Engine(translate(optimize(build_graph(catalog)), catalog, {}))
    for name in engine_streams(catalog, given_):
        engine.feed(name, [Arrival(ts, row, ts) for ts, row in given_[name]])
    engine.run()
    return [Counter((t.ts, t.row) for t in engine.results(f"q{number}")) for number in range(queries)]


def engine_streams(catalog: Catalog, given_: Streams) -> list[str]:
    read = build_graph(catalog).streams
    return [name for name in given_ if name in read]


def by_tasks(catalog: Catalog, given_: Streams, queries: int, borders: list[int]) -> list[Rows]:
    graph = share(optimize(build_graph(catalog)), catalog)
    found: dict[str, list[Timed]] = {}
    for task in split_into_tasks(graph):
        program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
        rows: dict[str, list[Timed]] = {log: [] for _, log in task.outputs}
        for begin, end in pairwise([-1, *sorted(borders), END]):
            tables = {}
            for log in task.inputs:
                own = [(n, Timed(*one)) for n, one in enumerate(given_[log]) if begin <= one[0] < end]
                schema = graph[graph.streams[log]].schema
                timed = [row for _, row in own]
                tables[log] = to_table(timed, schema, [0] * len(own), [n for n, _ in own])
            outcome = program.run(tables, dict.fromkeys(task.inputs, end))
            assert not outcome.errors
            for node_id, log in task.outputs:
                new = timed_rows(outcome.tables[log], graph[node_id].schema)
                assert all(a.ts <= b.ts for a, b in pairwise([*rows[log][-1:], *new]))
                rows[log] += new
        found |= rows
    return [Counter((t.ts, t.row) for t in found[f"q{number}"]) for number in range(queries)]


def check(drawn: list[DrawnChain], given_: Streams, borders: list[int]) -> int:
    text = DECLARED + "".join(f"CREATE QUERY q{n} AS {chain.esl()};" for n, chain in enumerate(drawn))
    catalog = bind(text).catalog
    expected = [chain.rows(given_) for chain in drawn]
    reference = by_reference(catalog, given_, len(drawn))
    tasks = by_tasks(catalog, given_, len(drawn), [border * SECOND for border in borders])
    for chain, own, read, wanted in zip(drawn, tasks, reference, expected, strict=True):
        assert read == wanted, chain.esl()
        assert own == wanted, chain.esl()
    return sum(map(Counter.total, expected))


@st.composite
def given_chains(draw: st.DrawFn) -> tuple[list[DrawnChain], Streams]:
    drawn = draw(chain_sets())
    return drawn, draw(streams(drawn))


@settings(max_examples=40, deadline=None)
@given(given_chains(), st.lists(st.integers(0, 24), max_size=4))
def test_chains_of_joins_give_what_nested_loops_give(
    drawn: tuple[list[DrawnChain], Streams], borders: list[int]
) -> None:
    event("results" if check(*drawn, borders) else "no results")


@pytest.mark.slow_cpu
@settings(max_examples=12, deadline=None)
@given(chain_scenes(subtasks=st.integers(1, 6)))
def test_chains_of_joins_are_the_same_in_all_placements_and_over_crashes(scene: Scene) -> None:
    check_scene(scene)
