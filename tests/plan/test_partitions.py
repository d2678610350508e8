"""Tasks that can be split into subtasks, and the keys of their logs; rows and order do not change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.functions.render import render
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.partitioning import Along, Exchange, by_key, by_time
from slicemill.plan.tasks import split_into_tasks
from support.corpus import Event
from support.reference import by_reference
from support.tasks import run_logs, run_tasks

STREAMS = "".join(
    f"CREATE STREAM {name} (k INT, v INT, x INT, ts TIMESTAMP) ORDER BY ts;\n" for name in "abcd"
)
WINDOWED = ", ".join(f"{name} [RANGE 3 SECONDS]" for name in "abc")
ONE_KEY = f"SELECT a.v, b.v AS w, c.v AS z FROM {WINDOWED} WHERE a.k = b.k AND b.k = c.k"
SPLIT = {
    "three streams on one key": ONE_KEY,
    "four streams on one key, joined transitively": (
        f"SELECT a.v, d.x FROM {WINDOWED}, d [RANGE 2 SECONDS] WHERE a.k = b.k AND a.k = c.k AND d.k = c.k"
    ),
    "two keys in another order": (
        f"SELECT a.v, c.v AS w FROM {WINDOWED} WHERE a.k = b.k AND a.x = b.x AND c.x = b.x AND c.k = a.k"
    ),
    "groups of a join by its key": (
        "SELECT a.k, count(*) AS n, sum(b.v) AS s FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] "
        "WHERE a.k = b.k GROUP BY a.k"
    ),
    "windows over a join by its key and a column of one input": (
        "SELECT sum(v) OVER (PARTITION BY x, j ROWS 2 PRECEDING) AS s FROM "
        "(SELECT a.x AS x, b.k AS j, b.v AS v FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] "
        "WHERE a.k = b.k) t"
    ),
    "one common key and another equality": (
        f"SELECT a.v, c.v AS w FROM {WINDOWED} WHERE a.k = b.k AND b.k = c.k AND c.x = b.x"
    ),
    "windows over a join by the key of the other input": (
        "SELECT j, sum(v) OVER (PARTITION BY j ROWS 2 PRECEDING) AS s FROM (SELECT b.k AS j, a.v AS v "
        "FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k) t"
    ),
}
UNIONS = {
    "a union joined on a key": (
        "SELECT p.v, b.v AS w FROM (SELECT k, v FROM a UNION ALL SELECT x, v FROM c WHERE v > 2) p "
        "[RANGE 3 SECONDS], b [RANGE 3 SECONDS] WHERE p.k = b.k"
    ),
    "a filtered union with a repeated stream, joined with two streams": (
        "SELECT p.v, b.v AS w FROM (SELECT n AS k, v FROM (SELECT k AS n, v FROM a "
        "UNION ALL SELECT k, x FROM a UNION ALL SELECT x, v FROM c) u WHERE v > 1) p [RANGE 3 SECONDS], "
        "b [RANGE 2 SECONDS], d [RANGE 2 SECONDS] WHERE p.k = b.k AND b.k = d.k"
    ),
}
WHOLE = {
    "windows over a union with a repeated stream": (
        "SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS s FROM "
        "(SELECT k, v FROM a UNION ALL SELECT k, x FROM a UNION ALL SELECT x, v FROM c) p"
    ),
    "groups of a union": (
        "SELECT k, count(*) AS n FROM (SELECT k, v FROM a UNION ALL SELECT x, v FROM b) p "
        "[RANGE 3 SECONDS SLIDE 2 SECONDS] GROUP BY k"
    ),
    "joins on different keys": f"SELECT a.v FROM {WINDOWED} WHERE a.k = b.k AND b.x = c.x",
    "groups of a join by another column": (
        "SELECT a.x, count(*) AS n FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k GROUP BY a.x"
    ),
    "windows over a join by a column of one input": (
        "SELECT sum(v) OVER (PARTITION BY x ROWS 2 PRECEDING) AS s FROM (SELECT a.x AS x, b.v AS v "
        "FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k) t"
    ),
    "windows over a union of two columns of one stream": (
        "SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS s FROM "
        "(SELECT k, v FROM a UNION ALL SELECT x, v FROM a) p"
    ),
    "groups of a join without a key": (
        "SELECT a.x, count(*) AS n FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] WHERE a.k < b.k GROUP BY a.x"
    ),
}
_AB = "FROM a [RANGE 3 SECONDS], b [RANGE 2 SECONDS]"
BY_TIME = {
    "a stream with itself on different columns": (
        "SELECT p.v FROM a p [RANGE 3 SECONDS], a q [RANGE 3 SECONDS] WHERE p.k = q.x"
    ),
    "theta": f"SELECT a.v, b.v AS w {_AB} WHERE a.k < b.k",
    "band": f"SELECT a.v, b.v AS w {_AB} WHERE a.v BETWEEN b.v - 1 AND b.v + 1",
    "or": f"SELECT a.v, b.x {_AB} WHERE a.k = b.k OR a.x = b.x",
    "cross": f"SELECT a.v, b.v AS w {_AB}",
    "count windows": "SELECT a.v, b.v AS w FROM a [ROWS 3], b [RANGE 2 SECONDS] WHERE a.k = b.k",
    "count windows, without a key": "SELECT a.v, b.v AS w FROM a [ROWS 3], b [ROWS 2] WHERE a.v < b.v",
    "a union": (
        "SELECT p.v, b.v AS w FROM (SELECT k, v FROM a UNION ALL SELECT x, v FROM c) p [RANGE 3 SECONDS], "
        "b [RANGE 3 SECONDS] WHERE p.k < b.k"
    ),
    "window sums joined with another stream": (
        "SELECT p.s, b.v FROM (SELECT k, sum(v) OVER (ROWS 2 PRECEDING) AS s FROM a) p [RANGE 3 SECONDS], "
        "b [RANGE 3 SECONDS] WHERE p.s < b.v + 9"
    ),
    "a filter after the join": (
        "SELECT n FROM (SELECT a.v + b.v AS n FROM a [RANGE 3 SECONDS], b [RANGE 3 SECONDS] "
        "WHERE a.k < b.k) t WHERE n > 5"
    ),
}


def exchanges(query: str) -> list[dict[str, Exchange]]:
    catalog = bind(f"{STREAMS} CREATE QUERY q AS {query};").catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    return [by_key(task, graph, 4) or by_time(task, graph, 4) for task in split_into_tasks(graph)]


@pytest.mark.parametrize("query", SPLIT.values(), ids=SPLIT)
def test_a_task_with_one_key_throughout_is_split_by_that_key(query: str) -> None:
    (found,) = exchanges(query)
    assert len(found) >= 2 and all(exchange.by_key for exchange in found.values())
    keys = [[render(key) for key in exchange.by[0]] for exchange in found.values()]
    assert len(set(map(tuple, map(sorted, keys)))) == 1


@pytest.mark.parametrize("query", UNIONS.values(), ids=UNIONS)
def test_a_union_is_split_by_the_key_of_its_reader_under_any_column_names(query: str) -> None:
    (found,) = exchanges(query)
    assert len(found) >= 2 and all(exchange.by_key for exchange in found.values())


@pytest.mark.parametrize("query", WHOLE.values(), ids=WHOLE)
def test_a_task_that_compares_rows_across_keys_is_not_split(query: str) -> None:
    assert exchanges(query) == [{}]


@pytest.mark.parametrize("query", BY_TIME.values(), ids=BY_TIME)
def test_a_join_that_cannot_be_split_by_key_is_split_by_time(query: str) -> None:
    (found,) = exchanges(query)
    assert set(found.values()) == {Exchange((4,), (Along.EVERY,))}


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


@pytest.mark.parametrize("query", (SPLIT | UNIONS | BY_TIME).values(), ids=SPLIT | UNIONS | BY_TIME)
@given(events=arrivals(), subtasks=st.integers(2, 5), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_several_subtasks_emit_the_rows_of_one_subtask_in_the_same_order(
    query: str, events: list[Event], subtasks: int, seed: int
) -> None:
    catalog = bind(f"{STREAMS} CREATE QUERY q AS {query};").catalog
    alone, several = (run_logs(catalog, events, seed + count, count) for count in (1, subtasks))
    if query == BY_TIME["a filter after the join"]:
        # One subtask numbers the rows of a cause before the filter, which leaves gaps.
        alone, several = (
            {log: [row[0] for row in rows] for log, rows in logs.items()} for logs in (alone, several)
        )
    assert several == alone


@given(events=arrivals(), subtasks=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_readers_of_a_union_emit_rows_in_the_order_of_the_reference_engine(
    events: list[Event], subtasks: int, seed: int
) -> None:
    union = "(SELECT k, v FROM a UNION ALL SELECT x, v FROM b) p"
    catalog = bind(
        f"{STREAMS} CREATE QUERY groups AS SELECT k, count(*) AS n FROM {union} "
        "[RANGE 3 SECONDS SLIDE 2 SECONDS] GROUP BY k;"
        f"CREATE QUERY pairs AS SELECT p.v, c.v AS w FROM {union} [RANGE 3 SECONDS], c [RANGE 3 SECONDS] "
        "WHERE p.k = c.k;"
    ).catalog
    assert run_tasks(catalog, events, {}, seed, subtasks) == by_reference(catalog, events, {})
