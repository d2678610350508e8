"""Which units can be split into cells, by which keys of their logs, and that no row or order tells."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.esl import bind
from slicemill.esl.render.expressions import render
from slicemill.plan.build import build_graph
from slicemill.plan.optimize import optimize, share
from slicemill.plan.partitions import exchanges_of
from slicemill.plan.units import cut
from support.corpus import Event
from support.units import run_units

STREAMS = "".join(
    f"CREATE STREAM {name} (k INT, v INT, x INT, ts TIMESTAMP) ORDER BY ts;\n" for name in "abcd"
)
WINDOWED = ", ".join(f"{name} [RANGE 3 SECONDS]" for name in "abc")
ONE_KEY = f"SELECT a.v, b.v AS w, c.v AS z FROM {WINDOWED} WHERE a.k = b.k AND b.k = c.k"
SPLIT = {
    "three streams on one key": ONE_KEY,
    "four streams on one key, by way of another": (
        f"SELECT a.v, d.x FROM {WINDOWED}, d [RANGE 2 SECONDS] WHERE a.k = b.k AND a.k = c.k AND d.k = c.k"
    ),
    "two keys in another order": (
        f"SELECT a.v, c.v AS w FROM {WINDOWED} WHERE a.k = b.k AND a.x = b.x AND c.x = b.x AND c.k = a.k"
    ),
    "groups of a join by its key": (
        "SELECT a.k, count(*) AS n, sum(b.v) AS s FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] "
        "WHERE a.k = b.k GROUP BY a.k"
    ),
    "windows over a join by its key and a column of one side": (
        "SELECT sum(v) OVER (PARTITION BY x, j ROWS 2 PRECEDING) AS s FROM "
        "(SELECT a.x AS x, b.k AS j, b.v AS v FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] "
        "WHERE a.k = b.k) t"
    ),
    "one key, then more": (
        f"SELECT a.v, c.v AS w FROM {WINDOWED} WHERE a.k = b.k AND b.k = c.k AND c.x = b.x"
    ),
    "windows over a join by the other side's key": (
        "SELECT j, sum(v) OVER (PARTITION BY j ROWS 2 PRECEDING) AS s FROM (SELECT b.k AS j, a.v AS v "
        "FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k) t"
    ),
}
WHOLE = {
    "joins on different keys": f"SELECT a.v FROM {WINDOWED} WHERE a.k = b.k AND b.x = c.x",
    "groups of a join by another column": (
        "SELECT a.x, count(*) AS n FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k GROUP BY a.x"
    ),
    "windows over a join by a column of one side": (
        "SELECT sum(v) OVER (PARTITION BY x ROWS 2 PRECEDING) AS s FROM (SELECT a.x AS x, b.v AS v "
        "FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k) t"
    ),
    "a stream with itself on different columns": (
        "SELECT p.v FROM a p [RANGE 3 SECONDS], a q [RANGE 3 SECONDS] WHERE p.k = q.x"
    ),
    "no key": "SELECT a.v FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] WHERE a.k < b.k",
}


def keys_by_log(query: str) -> list[dict[str, list[str]]]:
    catalog = bind(f"{STREAMS} CREATE QUERY q AS {query};").catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    return [
        {
            log: [render(key) for key in exchange.by[0]]
            for log, exchange in exchanges_of(unit, graph, 4).items()
        }
        for unit in cut(graph)
    ]


@pytest.mark.parametrize("query", SPLIT.values(), ids=SPLIT)
def test_what_has_one_key_throughout_is_split_by_it(query: str) -> None:
    (found,) = keys_by_log(query)
    assert len(found) >= 2
    assert len({tuple(sorted(keys)) for keys in found.values()}) == 1


@pytest.mark.parametrize("query", WHOLE.values(), ids=WHOLE)
def test_what_meets_across_keys_stays_whole(query: str) -> None:
    assert keys_by_log(query) == [{}]


@st.composite
def arrivals(draw: st.DrawFn) -> list[Event]:
    drawn = draw(
        st.lists(
            st.tuples(
                st.integers(0, 6),
                st.sampled_from("abcd"),
                st.integers(0, 2),
                st.integers(0, 9),
                st.integers(0, 1),
            ),
            max_size=25,
        )
    )
    events = []
    for number, (second, stream, k, v, x) in enumerate(sorted(drawn, key=lambda one: one[0])):
        ts = second * 1_000_000
        events.append(Event(ts + number, stream, ts, (k, v, x, ts)))
    return events


@pytest.mark.parametrize("query", SPLIT.values(), ids=SPLIT)
@given(events=arrivals(), cells=st.integers(2, 5), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_rows_and_their_order_are_those_of_one_cell(
    query: str, events: list[Event], cells: int, seed: int
) -> None:
    catalog = bind(f"{STREAMS} CREATE QUERY q AS {query};").catalog
    alone = run_units(catalog, events, {}, seed, cells=1)
    assert run_units(catalog, events, {}, seed + 1, cells) == alone
