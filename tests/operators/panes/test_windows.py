"""Shared windows against the tuples of each window, whatever the members and wherever runs are cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.panes.asked import (
    COLUMNS,
    SCHEMA,
    Asked,
    D,
    G,
    K,
    Runs,
    V,
    W,
    figure,
    lengths,
    members,
    rows_of,
    simple,
    slides,
    streams,
    table_of,
    windows_of,
)
from operators.panes.brute import Event, shown
from operators.panes.values import plain
from slicemill import types as t
from slicemill.catalog.expressions import Call, Literal
from slicemill.catalog.queries import AggregateCall
from slicemill.errors import SlicemillError
from slicemill.operators.window.pane_state import PaneState
from slicemill.operators.window.panes import GroupWindows, PaneInput, PaneWindows
from slicemill.operators.window.spec import edge_grids
from slicemill.operators.window.step import Emission
from slicemill.time import END
from slicemill.types import Column
from support.stored import stored


def check(asked: Sequence[Asked], keys: Sequence[int], runs: Runs, restarts: frozenset[int]) -> None:
    """Every member gives, run by run, the rows of the windows that have ended, in order."""
    named = {f"m{number}": member for number, member in enumerate(asked)}
    state, before = PaneState(), -END
    for number, (events, until) in enumerate(runs):
        live = {name: m for name, m in named.items() if m.first <= number <= m.last}
        if number in restarts:
            state = stored(state)
        if not live:
            state = PaneState()
            continue
        windows = windows_of(live, keys, state)
        for (name, member), answer in zip(
            live.items(), windows.advance(table_of(events), until), strict=True
        ):
            known = [event for own, _ in runs[member.first : number + 1] for event in own]
            after = -END if number == member.first else before
            assert rows_of(answer, member.member(keys)) == member.expected(known, keys, after, until), name
        check_due(windows, live, keys, runs[: number + 1])
        before = until


def check_due(windows: PaneWindows, live: dict[str, Asked], keys: Sequence[int], runs: Runs) -> None:
    """Nobody sleeps over a window that will end without further tuples."""
    due, until = windows.due(), runs[-1][1]
    assert due is None or due > until
    if due is None or due > until + 1:
        for member in live.values():
            known = [event for own, _ in runs[member.first :] for event in own]
            latest = END if due is None else due - 1
            assert member.expected(known, keys, until, latest) == []


@settings(max_examples=120)
@given(
    st.lists(members(), min_size=1, max_size=4),
    st.sampled_from([(), (K,), (G,), (W,), (K, G)]),
    streams(),
    st.frozensets(st.integers(1, 3)),
)
@example(  # zeros of both signs, in entries of several patterns: the first of all is the least
    [Asked("groups", (("min", W), ("max", W)), (10, 10)), Asked("groups", (("min", W),), (10, 10), 0)],
    (),
    [
        (
            [
                Event(0, 0, (0, "", 1, 5.0, None)),
                Event(1, 1, (0, "", 0, 0.0, None)),
                Event(2, 2, (0, "", 1, -0.0, None)),
            ],
            END,
        )
    ],
    frozenset(),
)
@example(  # one pane in two runs: what came first in it is in the first
    [Asked("groups", (("first", V), ("last", V)), (10, 10))],
    (K,),
    [
        ([Event(0, 0, (1, "", 0, None, None)), Event(1, 1, (0, "", 1, None, None))], 1),
        ([Event(1, 2, (0, "", 2, None, None))], END),
    ],
    frozenset({1}),
)
@example([Asked("groups", (("count", None),), (3, 10))], (), [(simple(0, 6, 7, 9, 10), END)], frozenset())
@example([Asked("over", (("sum", V),), (20, 30))], (K,), [(simple(0, 31), 30), ([], END)], frozenset({1}))
def test_each_member_gives_the_figures_of_its_windows(
    asked: list[Asked], keys: tuple[int, ...], runs: Runs, restarts: frozenset[int]
) -> None:
    check(asked, keys, runs, restarts)


@settings(max_examples=40)
@given(st.lists(members(), min_size=1, max_size=3), streams(), st.sets(st.integers(1, 20), max_size=4))
def test_any_cut_of_the_input_gives_the_same_rows(asked: list[Asked], runs: Runs, cuts: set[int]) -> None:
    """At any border, also between equal timestamps, state may be stored and loaded."""
    asked = [Asked(m.kind, m.calls, m.window, m.above) for m in asked]
    events = [event for own, _ in runs for event in own]
    indices = sorted({0, len(events), *(cut for cut in cuts if cut < len(events))})
    parts = [events[first:last] for first, last in pairwise(indices)] or [[]]
    untils = [part[0].ts for part in parts[1:]]
    check(asked, (K,), list(zip(parts, [*untils, END], strict=True)), frozenset(range(len(parts))))


def test_seventy_conditions_make_patterns_of_two_words() -> None:
    asked = [Asked("groups", (("count", None), ("max", V)), (10, 5), above) for above in range(70)]
    events = [Event(n // 9, n, (n % 3, None, n * 7 % 71, None, None)) for n in range(90)]
    check(asked, (K,), [(events[:40], 4), (events[40:], END)], frozenset({1}))


# -- DuckDB ------------------------------------------------------------------------------------------------

DUCKDB = {
    ("count", None): "count(*)",
    ("count", G): "count(g)",
    ("sum", V): "sum(v)",
    ("min", V): "min(v)",
    ("max", V): "max(v)",
    ("min", G): "min(g)",
    ("max", G): "max(g)",
    ("first", V): "arg_min_null(v, seq)",
    ("last", G): "arg_max_null(g, seq)",
    ("sum", D): "sum(d)",
    ("max", D): "max(d)",
    ("min", W): "min(w)",
    ("max", W): "max(w)",
}


def by_duckdb(events: list[Event], member: Asked, keys: Sequence[int]) -> list[str]:
    by = "".join(f", {SCHEMA.names[key]}" for key in keys)
    length, slide = member.window
    found = ", ".join(DUCKDB[made] for made in member.calls)
    where = "true" if member.above is None else f"v > {member.above}"
    last = max((event.ts + length for event in events), default=0) // slide
    ends = f"SELECT unnest(range(-90, {last + 1})) * {slide} AS e"
    query = f"""SELECT e, min(seq){by}, {found}, e FROM ({ends}) AS ends
        JOIN s ON ts >= e - {length} AND ts < e WHERE {where} GROUP BY e{by} ORDER BY e, min(seq)"""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE s (ts BIGINT, seq BIGINT, k INT, g VARCHAR, v BIGINT, w DOUBLE, d DECIMAL(12, 2))"
        )
        for event in events:
            connection.execute(
                "INSERT INTO s VALUES (?, ?, ?, ?, ?, ?, ?)", [event.ts, event.seq, *event.row]
            )
        return [one_zero(row) for row in connection.execute(query).fetchall()]


def one_zero(row: Sequence[Any]) -> str:
    """DuckDB shows either zero."""
    return shown([value + 0.0 if isinstance(value, float) else value for value in row])


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(sorted(DUCKDB, key=str)), min_size=1, max_size=3, unique=True),
    lengths,
    slides,
    st.sampled_from([None, 0, 3]),
    st.sampled_from([(), (K,), (G,), (K, G)]),
    streams(),
)
def test_duckdb_finds_the_same_rows(
    calls: list[tuple[str, int | None]],
    length: int,
    slide: int,
    above: int | None,
    keys: tuple[int, ...],
    runs: Runs,
) -> None:
    member = Asked("groups", tuple(calls), (length, slide), above)
    other = Asked("groups", (("count", None),), (7, 4), 2)
    state, made = PaneState(), []
    runs = [*runs, ([], END)]
    for events, until in runs:
        windows = windows_of({"m": member, "other": other}, keys, state)
        (table, _), _ = windows.advance(table_of(events), until)  # type: ignore[misc]
        if table is not None:
            names = ["_ts", "_seq", *(column.name for column in member.member(keys).columns)]
            types = [t.BIGINT, t.BIGINT, *(column.type for column in member.member(keys).columns)]
            columns = [plain(table.column(name), type_) for name, type_ in zip(names, types, strict=True)]
            made += [one_zero(row) for row in zip(*columns, strict=True)]
    assert made == by_duckdb([event for own, _ in runs for event in own], member, keys)


# -- failures, coming and going, expiry --------------------------------------------------------------------


def failing(window: tuple[int, int]) -> GroupWindows:
    """sum(10 / v), which has no value where v is 0."""
    quotient = Call("/", (Literal(10, t.INT), COLUMNS[V]), t.DOUBLE)
    made = AggregateCall("sum", (quotient,), False, (Column("c0", t.DOUBLE),))
    return GroupWindows(*window, (), {"c0": figure(made)}, made.columns)


def run_with_failing(window: tuple[int, int], *runs: tuple[list[Event], int]) -> list[list[Emission]]:
    """A member that divides beside one that counts; state is stored between runs."""
    counting = Asked("groups", (("count", None),), (10, 10))
    state, answers = PaneState(), []
    for events, until in runs:
        state = stored(state)
        state.adopt({"failing": "a", "counting": "b"})
        members = {"failing": failing(window), "counting": counting.member(())}
        windows = PaneWindows(
            PaneInput(SCHEMA, ()), members, dict.fromkeys(members), edge_grids([window, (10, 10)]), state
        )
        answers.append(windows.advance(table_of(events), until))
    return answers


def test_a_member_that_fails_stays_failed_and_takes_no_other_with_it() -> None:
    runs = run_with_failing(
        (10, 10), (simple(1, 2), 2), (simple(3, value=0, first=2), 10), (simple(12, first=3), 20)
    )
    assert isinstance(runs[0][0], tuple)
    assert isinstance(runs[1][0], SlicemillError) and "zero" in str(runs[1][0])
    assert str(runs[2][0]) == str(runs[1][0])
    counted = [answers[1][0].column("c0").to_pylist() for answers in runs[1:]]  # type: ignore[index,union-attr]
    assert counted == [[3], [1]]


def test_a_tuple_in_none_of_its_windows_fails_nobody() -> None:
    """RANGE 3 SLIDE 10 holds the times 7 to 9."""
    events = [*simple(6, value=0), *simple(7, value=4, first=1)]
    ((answer, _),) = run_with_failing((3, 10), (events, END))
    assert isinstance(answer, tuple) and answer[0] is not None
    assert answer[0].column("c0").to_pylist() == [2.5]
    ((answer, _),) = run_with_failing((4, 10), (events, END))
    assert isinstance(answer, SlicemillError)


def test_a_sum_that_does_not_fit_fails_its_member_when_the_window_ends() -> None:
    asked = {
        "sum": Asked("groups", (("sum", V),), (10, 5)),
        "max": Asked("groups", (("max", V),), (10, 5)),
    }
    state = PaneState()
    windows = windows_of(asked, (), state)
    events = [*simple(1, value=2**62), *simple(6, value=2**62, first=1)]
    first = windows.advance(table_of(events), 5)
    assert not any(isinstance(answer, SlicemillError) for answer in first)
    failed, kept = windows.advance(table_of([]), 10)
    assert isinstance(failed, SlicemillError) and "sum(v) does not fit into BIGINT" in str(failed)
    assert rows_of(kept, asked["max"].member(())) == [shown([10, 0, 2**62, 10])]


def test_a_member_that_comes_again_under_its_name_begins_anew() -> None:
    once = Asked("groups", (("count", None),), (100, 10))
    again = Asked("groups", (("count", None),), (100, 20))
    state = PaneState()
    windows_of({"m": once, "other": once}, (), state).advance(table_of(simple(1, 2, 3)), 3)
    (answer, _) = windows_of({"m": again, "other": once}, (), state).advance(table_of(simple(4, first=3)), 20)
    assert rows_of(answer, again.member(())) == [shown([20, 3, 1, 20])]


@pytest.mark.parametrize("kind", ["groups", "over", "values", "medians"])
def test_what_no_window_needs_is_released(kind: str) -> None:
    asked = {"m": Asked(kind, (("sum", V),), (10, 5))}
    state = PaneState()
    for start in range(0, 200, 5):
        events = [Event(start + n, start + n, (start, None, 1, None, None)) for n in range(5)]
        windows_of(asked, (K,), state).advance(table_of(events), start + 5)
        assert state.entries.rows + state.values.rows <= 20
    windows = windows_of(asked, (K,), state)
    windows.advance(table_of(simple(200, first=200)), END)
    assert state.entries.rows == state.values.rows == 0 and windows.due() is None


def test_tuples_in_no_window_are_not_kept() -> None:
    """RANGE 1 SLIDE 10 holds the times 9, 19 and so on: nothing of the others is ever answered."""
    asked = {"m": Asked("groups", (("sum", V),), (1, 10))}
    state = PaneState()
    for start in range(0, 200, 10):
        windows = windows_of(asked, (K,), state)
        windows.advance(table_of(simple(start + 5, first=start)), start + 5)
        assert state.entries.rows <= 2 and windows.due() is None
