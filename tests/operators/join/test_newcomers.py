"""Queries that come later: nothing is missing from the time they are told on, and nothing is there that a
query which was always there would not have."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.slices.coverage import Covers, complete_from, covers
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.join.state import JoinState
from slicemill.operators.join.step import SharedJoinStep
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share

SECOND = 1_000_000
STREAMS = "".join(f"CREATE STREAM {s} (k int, v int, w int, ts timestamp) ORDER BY ts;" for s in "ab")

# Second, stream, key and value; a tuple's number is its other value.
events = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 1), st.integers(0, 2), st.integers(0, 2)), max_size=40
)
windows = st.integers(1, 12)
selections = st.sampled_from(["", " AND a.v > 0", " AND b.v > 0 AND a.v > 0", " AND a.k > 0"])
texts = st.builds(
    lambda left, right, where: (
        f"SELECT a.w, a.v, b.w AS x, b.v AS y FROM a [RANGE {left} SECONDS], b [RANGE {right} SECONDS] "
        f"WHERE a.k = b.k{where}"
    ),
    windows,
    windows,
    selections,
)


def _plan(queries: dict[str, str]) -> tuple[SharedJoin, QueryGraph]:
    text = "".join(f"CREATE QUERY {name} AS {query};" for name, query in queries.items())
    catalog = bind(STREAMS + text).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (join,) = (node.operator for node in graph if isinstance(node.operator, SharedJoin))
    return join, graph


def _run(join: SharedJoinStep, rows: list[tuple[int, ...]], until: int) -> list[set[tuple[int, int, int]]]:
    tables = []
    for side in (0, 1):
        mine = [(ts * SECOND, k, v, w) for ts, of, k, v, w in rows if of == side]
        times = pa.array([row[0] for row in mine], pa.int64())
        columns = {"_ts": times, "_seq": times, "_arr": times, "ts": times.cast(pa.timestamp("us", tz="UTC"))}
        for index, name in enumerate("kvw", start=1):
            columns[name] = pa.array([row[index] for row in mine], pa.int32())
        tables.append(pa.table(columns))
    found = []
    for part in join.run(tables, [until, until]):
        assert isinstance(part, tuple)
        answer, _ = part
        numbers = [name for name in answer.column_names if name.rpartition(".")[2] == "w"]
        columns = [answer.column("_ts").to_pylist(), *(answer.column(name).to_pylist() for name in numbers)]
        found.append(set(zip(*columns, strict=True)))
    return found


@settings(max_examples=25, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@example(
    [(20, 1, 1, 1), (25, 0, 1, 2)],
    23,
    ["SELECT a.w, b.w AS x FROM a [RANGE 8 SECONDS], b [RANGE 1 SECONDS] WHERE a.k = b.k AND a.v > 0"],
    "SELECT a.w, b.w AS x FROM a [RANGE 1 SECONDS], b [RANGE 6 SECONDS] WHERE a.k = b.k",
    0,
    True,
)
@given(
    events,
    st.integers(0, 30),
    st.lists(texts, min_size=1, max_size=3),
    texts,
    st.sampled_from([0, 0, 0, 0, 1]),
    st.booleans(),
)
def test_a_newcomer_is_complete_from_when_it_is_told(
    given: list[tuple[int, int, int, int]], cut: int, before: list[str], text: str, words: int, stay: bool
) -> None:
    rows = [(*event, number) for number, event in enumerate(sorted(given))]
    queries = {f"q{number}": query for number, query in enumerate(before)}
    padding = {f"p{number}": before[0] for number in range(62 * words)}  # masks of more than one word
    old, graph = _plan(queries | padding)
    schemas = [graph[stream].schema for stream in "ab"]
    first = [row for row in rows if row[0] < cut]
    now = cut * SECOND  # how far the first run is complete: it lets go of what nobody wants by then
    state = JoinState()
    _run(SharedJoinStep(old, schemas, state), first, cut * SECOND)

    # Those that were there may have gone when the first run comes: what is stored for them is there.
    shared, _ = _plan({**(queries | padding if stay else {}), "late": text})
    late = next(member for member in shared.members if member.name.startswith("late"))
    members = {member.name: member for member in old.members}
    covered: Covers = covers([late], list(members.values()))
    joined = SharedJoinStep(shared, schemas, state, newcomers=covered)
    found = _run(joined, [row for row in rows if row[0] >= cut], 99 * SECOND)[shared.members.index(late)]

    alone, _ = _plan({"late": text})
    (always,) = _run(SharedJoinStep(alone, schemas, JoinState()), rows, 99 * SECOND)
    whole = complete_from(late, members, covered, {}, now)
    assert whole is not None and whole >= now
    assert {pair for pair in always if pair[0] >= max(whole, cut * SECOND)} <= found <= always


def test_a_query_of_the_same_name_and_form_starts_anew() -> None:
    text = "SELECT a.w, a.v, b.w AS x FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS] WHERE a.k = b.k"
    operator, graph = _plan({"q": text, "other": text.replace("9", "2")})
    schemas = [graph[stream].schema for stream in "ab"]
    member = next(member for member in operator.members if member.name.startswith("q"))
    for newcomers, expected in (({}, 1), ({member.name: (None, None)}, 0)):
        state = JoinState()
        _run(SharedJoinStep(operator, schemas, state), [(1, 0, 1, 1, 0)], 2 * SECOND)
        again = SharedJoinStep(operator, schemas, state, newcomers=newcomers)
        found = _run(again, [(5, 1, 1, 1, 1)], 9 * SECOND)
        assert len(found[operator.members.index(member)]) == expected
