"""Whose stored tuples serve a query that comes later, and from when on it is complete then."""

from __future__ import annotations

import pytest

from slicemill.binder import bind
from slicemill.operators.join.slices.coverage import complete_from, covers, members_behind
from slicemill.operators.join.spec import JoinMember
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share

STREAMS = "".join(f"CREATE STREAM {s} (k int, v int, w int, ts timestamp) ORDER BY ts;" for s in "ab")
SECOND = 1_000_000
NOW = 100 * SECOND


def _members(**queries: str) -> dict[str, JoinMember]:
    text = "".join(f"CREATE QUERY {name} AS {query};" for name, query in queries.items())
    catalog = bind(STREAMS + text).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    return {name: next(members_behind(graph, name)) for name in queries}


def _query(left: str, right: str, where: str = "", columns: str = "a.v, b.v AS w") -> str:
    return f"SELECT {columns} FROM a [{left}], b [{right}] WHERE a.k = b.k{where}"


def _seconds(left: int, right: int, where: str = "", columns: str = "a.v, b.v AS w") -> str:
    return _query(f"RANGE {left} SECONDS", f"RANGE {right} SECONDS", where, columns)


@pytest.mark.parametrize(
    ("newcomer", "missing_s"),
    [
        (_seconds(10, 20), 0),
        (_seconds(5, 5, " AND a.v > 3"), 0),  # tighter, and what it asks is stored
        (_seconds(12, 20), 2),
        (_seconds(10, 50), 30),
        (_seconds(10, 20, " AND a.w > 3"), 10),  # nobody stored a.w
        (_seconds(4, 3, columns="a.v, b.ts"), 3),
        (_seconds(4, 3, " AND a.v < b.v"), 0),
    ],
)
def test_a_newcomer_waits_for_what_is_not_stored(newcomer: str, missing_s: int) -> None:
    members = _members(always=_seconds(10, 20), new=newcomer)
    new = members.pop("new")
    others = {member.name: member for member in members.values()}
    covered = covers([new], list(others.values()))
    assert complete_from(new, others, covered, {}, NOW) == NOW + missing_s * SECOND


def test_a_looser_selection_starts_anew_and_the_longest_of_several_serves() -> None:
    members = _members(
        hot=_seconds(30, 30, " AND a.v > 3"), plain=_seconds(8, 40), short=_seconds(5, 5), new=_seconds(6, 35)
    )
    new = members.pop("new")
    assert covers([new], list(members.values()))[new.name] == (
        members["plain"].name,
        members["plain"].name,
    )
    only_hot = covers([new], [members["hot"]])
    assert only_hot[new.name] == (None, members["hot"].name)
    others = {members["hot"].name: members["hot"]}
    assert complete_from(new, others, only_hot, {}, NOW) == NOW + 6 * SECOND


def test_what_is_stored_goes_back_no_further_than_the_query_it_is_stored_for() -> None:
    members = _members(young=_seconds(30, 30), new=_seconds(20, 20))
    new, young = members["new"], members["young"]
    covered = covers([new], [young])
    since = {young.name: NOW - 5 * SECOND}
    assert complete_from(new, {young.name: young}, covered, since, NOW) == NOW + 15 * SECOND


def test_windows_that_count_rows_or_never_end() -> None:
    members = _members(
        rows=_query("ROWS 5", "ROWS 5"),
        ever=_query("RANGE UNBOUNDED", "RANGE UNBOUNDED"),
        new=_seconds(9, 9),
        rows_too=_query("ROWS 3", "ROWS 3"),
        ever_too=_query("RANGE UNBOUNDED", "RANGE 3 SECONDS"),
    )
    ever, others = members["ever"], {member.name: member for member in members.values()}
    assert covers([members["rows_too"]], [members["rows"], ever])[members["rows_too"].name] == (None, None)
    for name, since, whole in (
        ("new", {}, NOW),
        ("ever_too", {}, NOW),
        ("ever_too", {ever.name: NOW - SECOND}, None),
    ):
        covered = covers([members[name]], [ever])
        assert complete_from(members[name], others, covered, since, NOW) == whole
