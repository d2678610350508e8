"""Tasks run in each of their placements: rows, order and numbers equal those of one subtask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.operators.graph import QueryGraph
from slicemill.plan.partitioning import Exchange
from slicemill.plan.placement import PlacementKind, placements_of
from slicemill.plan.tasks import Task
from support.corpus import Event
from support.tasks import run_logs

STREAMS = "".join(
    f"CREATE STREAM {name} (k INT, v INT, x INT, ts TIMESTAMP) ORDER BY ts;\n" for name in "abcd"
)


def over(names: str) -> str:
    return ", ".join(f"{name} [RANGE {2 + number} SECONDS]" for number, name in enumerate(names))


QUERIES = {
    "two keys": f"SELECT a.v, b.v AS w, c.v AS z FROM {over('abc')} WHERE a.k = b.k AND b.x = c.x",
    "two keys, other order": f"SELECT c.v, b.v AS w FROM {over('cab')} WHERE a.k = b.k AND b.x = c.x",
    "a triangle": f"SELECT a.v, c.v AS w FROM {over('abc')} WHERE a.k = b.k AND b.x = c.x AND c.k = a.x",
    "a key and a comparison": f"SELECT a.v, c.v AS w FROM {over('abc')} WHERE a.k = b.k AND b.v < c.v",
    "no key": f"SELECT a.v, b.v AS w FROM {over('abc')} WHERE a.v < b.v AND b.v < c.v",
    "cross join": f"SELECT a.v, b.v AS w, c.x FROM {over('abc')}",
    "one key": f"SELECT a.v, c.v AS w FROM {over('abc')} WHERE a.k = b.k AND b.k = c.k",
    "four streams": f"SELECT a.v, d.v AS w FROM {over('abcd')} WHERE a.k = b.k AND b.x = c.x AND c.k = d.k",
    "a stream with itself": (
        "SELECT p.v, q.v AS w FROM a p [RANGE 3 SECONDS], a q [RANGE 2 SECONDS], b [RANGE 3 SECONDS] "
        "WHERE p.k = q.k AND q.x = b.x"
    ),
    "filtered and computed inputs": (
        "SELECT t.p + c.v AS n FROM a [RANGE 3 SECONDS], (SELECT k + 1 AS p, x FROM b WHERE v > 2) t "
        "[RANGE 3 SECONDS], c [RANGE 2 SECONDS] WHERE t.p = a.k AND t.x = c.x"
    ),
    "a union": (
        "SELECT t.v, c.v AS w FROM (SELECT k, v FROM a UNION ALL SELECT x, v FROM d) t [RANGE 3 SECONDS], "
        "b [RANGE 3 SECONDS], c [RANGE 2 SECONDS] WHERE t.k = b.k AND b.x = c.x"
    ),
    "two streams": f"SELECT a.v, b.v AS w FROM {over('ab')} WHERE a.k = b.k",
}


@st.composite
def arrivals(draw: st.DrawFn) -> list[Event]:
    drawn = draw(
        st.lists(
            st.tuples(
                st.integers(0, 6),
                st.sampled_from("aabbccd"),
                st.integers(0, 2),
                st.integers(0, 9),
                st.integers(0, 2),
            ),
            max_size=30,
        )
    )
    events = []
    for number, (second, stream, k, v, x) in enumerate(sorted(drawn, key=lambda one: one[0])):
        ts = second * 1_000_000
        events.append(Event(ts + number, stream, ts, (k, v, x, ts)))
    return events


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
@given(events=arrivals(), subtasks=st.sampled_from([2, 4, 6, 8]), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=20, deadline=None)
def test_every_placement_emits_the_rows_order_and_numbers_of_one_subtask(
    query: str, events: list[Event], subtasks: int, seed: int, data: st.DataObject
) -> None:
    catalog = bind(f"{STREAMS} CREATE QUERY q AS {query};").catalog
    kinds = data.draw(st.sampled_from([kind for kind in PlacementKind if kind is not PlacementKind.HYBRID]))
    number = data.draw(st.integers(0, 99))

    def exchanges(task: Task, graph: QueryGraph, subtasks: int) -> Mapping[str, Exchange]:
        found = placements_of(task, graph, subtasks)
        found = [one for one in found if one.kind is kinds] or found
        return found[number % len(found)].exchanges

    alone = run_logs(catalog, events, seed, 1)
    assert run_logs(catalog, events, seed + 1, subtasks, exchanges=exchanges) == alone


def test_a_hypercube_continues_from_checkpoints(tmp_path: Path) -> None:
    catalog = bind(f"{STREAMS} CREATE QUERY q AS {QUERIES['two keys']};").catalog
    events = [
        Event(n, "abc"[n % 3], n // 6 * 1_000_000, (n // 3 % 2, n, n % 2, n // 6 * 1_000_000))
        for n in range(60)
    ]

    def exchanges(task: Task, graph: QueryGraph, subtasks: int) -> Mapping[str, Exchange]:
        cubes = [one for one in placements_of(task, graph, subtasks) if one.kind is PlacementKind.HYPERCUBE]
        (found,) = [one for one in cubes if one.shape == (2, 3) and one.plain()["by"]["b"] == ["k", "x"]]
        return found.exchanges

    alone = run_logs(catalog, events, 1, 1)
    assert len(alone["q"]) > 50
    assert run_logs(catalog, events, 2, 6, tmp_path, exchanges) == alone
