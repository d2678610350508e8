"""CREATE OR REPLACE with other aggregates: state that holds all they need is taken over, never begun anew."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slicemill.api.mill import Mill
from slicemill.plan.rules import share_windows
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
STREAM = "CREATE STREAM s (at timestamp, k int, v int, d double, c decimal(12, 2)) ORDER BY at;"
OTHER = "CREATE QUERY other AS SELECT k, max(v) AS m FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k;"
ROWS = [
    (
        second * SECOND,
        second % 3,
        None if second % 7 == 0 else second,
        second / 3 if second % 5 else None,
        Decimal(second * 10 + second % 9).scaleb(-2),
    )
    for second in range(1, 41)
]
WINDOWS = {
    "sliding": "FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] WHERE v > 2 OR v IS NULL GROUP BY k",
    "sliding by row": "FROM s [RANGE 7 SECONDS] GROUP BY k",
    "session": "FROM s [SESSION 4 SECONDS] GROUP BY k",
}
# The figures before and after.
FIGURES = {
    "avg joins sum and count": ("sum(v) AS a, count(*) AS n", "sum(v) AS a, count(*) AS n, avg(v) AS m"),
    "sum and count join avg": ("avg(d) AS m", "avg(d) AS m, sum(d) AS a, count(d) AS n"),
    "avg comes from a variance": ("variance(d) AS w", "avg(d) AS m"),
    "avg of decimals": ("sum(c) AS a, count(c) AS n", "avg(c) AS m, sum(c) AS a"),
    "avg in place of sum": ("sum(v) AS a", "avg(v) AS m"),
}


def opened(folder: Path, query: str, subtasks: int = 1) -> Mill:
    mill = fed_mill(folder, Clock(), inline_pool(), subtasks)
    mill.execute(f"{STREAM}{OTHER}CREATE QUERY q AS {query};")
    mill.open()
    return mill


def restored(folder: Path) -> Mill:
    mill = fed_mill(folder, Clock(), inline_pool())
    mill.statements.restore()
    mill.open()
    return mill


def feed(mill: Mill, first: int, last: int) -> None:
    for row in ROWS[first:last]:
        feed_rows(mill, "s", [row])
        mill.dispatcher.run_all()


def rows(mill: Mill, name: str) -> list[tuple[object, ...]]:
    return [(timed.ts, *timed.row) for timed in mill.queries[name].timed_rows()]


def rows_of_another(folder: Path, query: str, first: int) -> list[tuple[object, ...]]:
    """Return what a query that was always there emits from a row on."""
    with opened(folder / "always", query) as always:
        feed(always, 0, first)
        seen = len(rows(always, "q"))
        feed(always, first, len(ROWS))
        finish(always)
        return rows(always, "q")[seen:]


def assert_takes_over(folder: Path, before: str, after: str, at: int, reopened: str = "") -> None:
    """Replace a query after some rows; its results must be those of a query that was always there."""
    mill = opened(folder / "home", before)
    since = mill.queries["q"].complete_from()
    feed(mill, 0, at)
    statement = f"CREATE OR REPLACE QUERY q AS {after}"
    effects = {one.effect: one.what for one in mill.statements.explain_replace(statement)}
    assert "keeps" in effects and not effects.keys() & {"begins anew", "ends"}
    assert effects["complete from"].startswith("as before")
    mill.execute(statement)
    assert mill.queries["q"].complete_from() == since
    border = mill.home.epoch
    if reopened:
        mill.close(checkpoint=reopened == "checkpoint")
        mill = fed_mill(folder / "home", Clock(), inline_pool())
        mill.statements.restore()
        mill.open()
    feed(mill, at, len(ROWS))
    finish(mill)
    always = opened(folder / "always", after)
    feed(always, 0, at)
    seen = len(rows(always, "q"))
    feed(always, at, len(ROWS))
    finish(always)
    assert rows_after(mill, border) == rows(always, "q")[seen:]
    assert rows(mill, "other") == rows(always, "other")
    mill.close()
    always.close()


def rows_after(mill: Mill, epoch: int) -> list[tuple[object, ...]]:
    """The results of the definition that came with an epoch."""
    found = rows(mill, "q")
    log = mill.home.logs["q"]
    later = sum(one.rows for one in log.epochs() if one.number > epoch)
    return found[len(found) - later :]


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS.keys())
@pytest.mark.parametrize(("before", "after"), FIGURES.values(), ids=FIGURES.keys())
def test_a_replacement_takes_over_the_state_that_has_what_it_needs(
    tmp_path: Path, window: str, before: str, after: str
) -> None:
    assert_takes_over(tmp_path, f"SELECT k, {before} {window}", f"SELECT k, {after} {window}", 14)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS.keys())
@pytest.mark.parametrize("reopened", ["checkpoint", "crash"])
def test_state_that_was_taken_over_is_there_after_a_restart(
    tmp_path: Path, window: str, reopened: str
) -> None:
    before, after = FIGURES["avg joins sum and count"]
    assert_takes_over(tmp_path, f"SELECT k, {before} {window}", f"SELECT k, {after} {window}", 14, reopened)


OVER = {
    "rows": "(PARTITION BY k ROWS 4 PRECEDING)",
    "range": "(PARTITION BY k RANGE 7 SECONDS PRECEDING)",
    "slide": "(PARTITION BY k RANGE 6 SECONDS PRECEDING SLIDE 3 SECONDS)",
}


@pytest.mark.parametrize("over", OVER.values(), ids=OVER.keys())
def test_aggregates_with_over_take_over_the_rows_that_are_kept(tmp_path: Path, over: str) -> None:
    before = f"SELECT k, sum(d) OVER {over} AS a FROM s"
    after = f"SELECT k, sum(d) OVER {over} AS a, avg(d) OVER {over} AS m, count(d) OVER {over} AS n FROM s"
    assert_takes_over(tmp_path, before, after, 14)


ALL_TIME = {
    "over": "OVER (PARTITION BY k RANGE UNBOUNDED PRECEDING)",
    "over all": "OVER (RANGE UNBOUNDED PRECEDING)",
    "over rows": "OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING)",
}
# Calls before and after; each call after has an accumulator among those before.
CALLS_OF_ALL_TIME = {
    "integers": (["sum(v)", "count(*)"], ["count(*)", "avg(v)", "sum(v)"]),
    "doubles": (["count(d)", "sum(d)", "min(v)"], ["avg(d)", "count(d)"]),
    "decimals": (["avg(c)"], ["sum(c)", "avg(c)"]),
    "rows kept by partition": (["sum(v)", "median(d)"], ["median(d)", "avg(v)", "sum(v)"]),
}


@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash"])
@pytest.mark.parametrize("over", ALL_TIME.values(), ids=ALL_TIME.keys())
@pytest.mark.parametrize(("before", "after"), CALLS_OF_ALL_TIME.values(), ids=CALLS_OF_ALL_TIME.keys())
def test_windows_without_a_beginning_take_over_accumulators(
    tmp_path: Path, over: str, before: list[str], after: list[str], reopened: str
) -> None:
    was, now = (
        f"SELECT k, {', '.join(f'{call} {over} AS f{index}' for index, call in enumerate(calls))} FROM s"
        for calls in (before, after)
    )
    assert_takes_over(tmp_path, was, now, 14, reopened)


BY_ROWS = {
    "by row": "FROM s [ROWS 9] WHERE v > 2 OR v IS NULL GROUP BY k",
    "by rows": "FROM s [ROWS 9 SLIDE 3] GROUP BY k",
    "without groups": "FROM s [ROWS 9]",
}


@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash"])
@pytest.mark.parametrize("window", BY_ROWS.values(), ids=BY_ROWS.keys())
def test_windows_of_rows_take_over_the_rows_that_are_kept(tmp_path: Path, window: str, reopened: str) -> None:
    key = "k, " if "GROUP" in window else ""
    before = f"SELECT {key}min(c) AS l, sum(v) AS a, count(*) AS n {window}"
    after = f"SELECT {key}sum(v) AS a, avg(v) AS m, count(*) AS n {window}"
    assert_takes_over(tmp_path, before, after, 14, reopened)


@pytest.mark.parametrize("slide", ["", " SLIDE 2 SECONDS"])
def test_windows_over_joins_take_over_the_rows_that_are_kept(tmp_path: Path, slide: str) -> None:
    joined = f"FROM s [RANGE 6 SECONDS{slide}] AS a, s [RANGE 4 SECONDS] AS b WHERE a.k = b.k GROUP BY a.k"
    before = f"SELECT a.k, min(b.c) AS l, sum(a.v) AS a, count(*) AS n {joined}"
    after = f"SELECT a.k, sum(a.v) AS a, avg(a.v) AS m, count(*) AS n, max(b.c) AS h {joined}"
    assert_takes_over(tmp_path, before, after, 14)


@pytest.mark.parametrize("window", [*BY_ROWS.values(), ALL_TIME["over"]])
def test_windows_that_lack_an_argument_begin_anew(tmp_path: Path, window: str) -> None:
    before, after = (
        f"SELECT {call} {window} AS f FROM s" if "OVER" in window else f"SELECT {call} AS f {window}"
        for call in ("sum(v)", "avg(d)")
    )
    mill = opened(tmp_path, before)
    feed(mill, 0, 14)
    effects = mill.statements.explain_replace(f"CREATE OR REPLACE QUERY q AS {after}")
    assert "begins anew" in {one.effect for one in effects}
    mill.close()


def test_a_start_with_another_definition_takes_over_state(tmp_path: Path) -> None:
    window = WINDOWS["sliding"]
    before, after = (f"SELECT k, {figures} {window}" for figures in FIGURES["avg joins sum and count"])
    mill = opened(tmp_path / "home", before)
    feed(mill, 0, 14)
    border = mill.home.epoch
    mill.close(checkpoint=False)
    mill = fed_mill(tmp_path / "home", Clock(), inline_pool())
    mill.execute(f"{STREAM}{OTHER}CREATE OR REPLACE QUERY q AS {after};")
    mill.open()
    feed(mill, 14, len(ROWS))
    finish(mill)
    always = opened(tmp_path / "always", after)
    feed(always, 0, 14)
    seen = len(rows(always, "q"))
    feed(always, 14, len(ROWS))
    finish(always)
    assert rows_after(mill, border) == rows(always, "q")[seen:]
    mill.close()
    always.close()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("count(*) AS n", "avg(v) AS m"),
        ("sum(v) AS a, count(*) AS n", "sum(v) AS a, avg(d) AS m"),
        ("sum(v) AS a", "max(v) AS m"),
    ],
)
def test_state_that_lacks_what_is_needed_begins_anew(tmp_path: Path, before: str, after: str) -> None:
    window = WINDOWS["sliding"]
    mill = opened(tmp_path, f"SELECT k, {before} {window}")
    feed(mill, 0, 14)
    effects = mill.statements.explain_replace(f"CREATE OR REPLACE QUERY q AS SELECT k, {after} {window}")
    assert "begins anew" in {one.effect for one in effects}
    mill.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_means_of_decimals_go_on_with_the_values_that_an_earlier_version_has_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    window = WINDOWS["sliding"]
    before, after = (
        f"SELECT k, {figures} {window}" for figures in ("avg(c) AS m, sum(c) AS a", "sum(c) AS a")
    )
    with monkeypatch.context() as patched:
        patched.setattr(share_windows, "combines_panes", lambda *_: False)
        mill = opened(tmp_path / "home", before)
        feed(mill, 0, 14)
        mill.close()
    mill = restored(tmp_path / "home")
    if replaced:
        mill.execute(f"CREATE OR REPLACE QUERY q AS {after}")
    border = mill.home.epoch
    mill.close(checkpoint=False)
    mill = restored(tmp_path / "home")
    feed(mill, 14, len(ROWS))
    finish(mill)
    assert rows_after(mill, border) == rows_of_another(tmp_path, after if replaced else before, 14)
    mill.close()


def test_a_checkpoint_is_restored_after_several_replacements(tmp_path: Path) -> None:
    window = WINDOWS["sliding"]
    selects = [f"SELECT k, {figures} {window}" for figures in ("sum(v) AS a", "avg(v) AS m", "count(v) AS n")]
    mill = opened(tmp_path / "home", selects[0])
    for index, select in enumerate(selects[1:], 1):
        feed(mill, 6 * index - 6, 6 * index)
        mill.execute(f"CREATE OR REPLACE QUERY q AS {select}")
        border = mill.home.epoch
    mill.close(checkpoint=False)
    mill = restored(tmp_path / "home")
    feed(mill, 12, len(ROWS))
    finish(mill)
    assert rows_after(mill, border) == rows_of_another(tmp_path, selects[-1], 12)
    mill.close()


CALLS = [
    "sum(v)",
    "avg(v)",
    "count(v)",
    "count(*)",
    "sum(d)",
    "avg(d)",
    "min(v)",
    "stddev(d)",
    "sum(c)",
    "avg(c)",
]


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True),
    st.sampled_from(list(WINDOWS.values())),
    st.integers(min_value=1, max_value=len(ROWS) - 1),
    st.booleans(),
)
def test_complete_results_after_any_replacement_equal_those_of_a_query_that_was_always_there(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[str],
    after: list[str],
    window: str,
    at: int,
    crashes: bool,
) -> None:
    folder = tmp_path_factory.mktemp("replaced")
    was, now = (
        f"SELECT k, {', '.join(f'{call} AS f{index}' for index, call in enumerate(calls))} {window}"
        for calls in (before, after)
    )
    mill = opened(folder / "home", was)
    feed(mill, 0, at)
    mill.execute(f"CREATE OR REPLACE QUERY q AS {now}")
    border = mill.home.epoch
    if crashes:
        mill.close(checkpoint=False)
        mill = fed_mill(folder / "home", Clock(), inline_pool())
        mill.statements.restore()
        mill.open()
    complete = mill.queries["q"].complete_from()
    feed(mill, at, len(ROWS))
    finish(mill)
    always = opened(folder / "always", now)
    feed(always, 0, at)
    seen = len(rows(always, "q"))
    feed(always, at, len(ROWS))
    finish(always)
    found, expected = rows_after(mill, border), rows(always, "q")[seen:]
    if was != now and complete is not None:
        found, expected = ([row for row in some if row[0] > complete] for some in (found, expected))
        assert found == expected
    mill.close()
    always.close()


GROUPS = {
    "groups": ("k, ", " GROUP BY k"),
    "selected groups": ("k, ", " GROUP BY k HAVING count(*) > 3"),
    "no groups": ("", " EMIT CHANGES"),
}
CALLS_OF_GROUPS = {
    "integers": ("sum(v), count(*)", "count(*), avg(v), sum(v)"),
    "doubles": ("count(d), sum(d), min(v)", "avg(d), count(d)"),
    "decimals": ("avg(c)", "sum(c), avg(c), mean(c)"),
    "distinct values": ("sum(v), count(DISTINCT v)", "count(DISTINCT v), avg(v)"),
}


def _selected(calls: str, groups: str) -> str:
    key, rest = GROUPS[groups]
    named = ", ".join(f"{call} AS f{index}" for index, call in enumerate(calls.split(", ")))
    return f"SELECT {key}{named} FROM s{rest}"


def _table(mill: Mill) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values())[1:] for row in mill.queries["q"].table().to_pylist()), key=str)


@pytest.mark.parametrize("subtasks", [1, 2])
@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash", "crash after"])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize(("before", "after"), CALLS_OF_GROUPS.values(), ids=CALLS_OF_GROUPS.keys())
def test_tables_of_all_history_take_over_accumulators(
    tmp_path: Path, before: str, after: str, groups: str, reopened: str, subtasks: int
) -> None:
    was, now = _selected(before, groups), _selected(after, groups)
    mill = opened(tmp_path / "home", was, subtasks)
    always = opened(tmp_path / "always", now)
    feed(mill, 0, 14)
    feed(always, 0, 14)
    since = mill.queries["q"].complete_from()
    statement = f"CREATE OR REPLACE QUERY q AS {now}"
    effects = {one.effect: one.what for one in mill.statements.explain_replace(statement)}
    assert {"keeps", "deletes"} <= effects.keys() and not effects.keys() & {"begins anew", "ends"}
    mill.execute(statement)
    assert mill.queries["q"].complete_from() == since
    if reopened in ("checkpoint", "crash"):
        mill.close(checkpoint=reopened == "checkpoint")
        mill = restored(tmp_path / "home")
    mill.dispatcher.run_all()
    assert _table(mill) == _table(always) != []
    if reopened == "crash after":
        mill.close(checkpoint=False)
        mill = restored(tmp_path / "home")
    for begin, end in ((14, 20), (20, len(ROWS))):
        feed(mill, begin, end)
        feed(always, begin, end)
        assert _table(mill) == _table(always)
    finish(mill)
    mill.close()
    always.close()


def test_another_condition_on_groups_emits_the_whole_table_again(tmp_path: Path) -> None:
    query = "SELECT k, count(*) AS n, sum(v) AS a FROM s GROUP BY k HAVING count(*) > {least}"
    mill, always = opened(tmp_path / "home", query.format(least=10)), opened(tmp_path, query.format(least=2))
    feed(mill, 0, 14)
    feed(always, 0, 14)
    assert _table(mill) == []
    mill.execute(f"CREATE OR REPLACE QUERY q AS {query.format(least=2)}")
    mill.dispatcher.run_all()
    assert _table(mill) == _table(always) != []
    mill.close()
    always.close()


def test_the_changes_of_a_table_that_was_taken_over_give_that_table(tmp_path: Path) -> None:
    before, after = (_selected(calls, "groups") for calls in CALLS_OF_GROUPS["integers"])
    mill = opened(tmp_path, before)
    feed(mill, 0, 14)
    mill.execute(f"CREATE OR REPLACE QUERY q AS {after}")
    mill.dispatcher.run_all()
    changes = rows(mill, "q")
    assert [op for _, op, *_ in changes] == ["insert"] * 3
    assert {ts for ts, *_ in changes} == {14 * SECOND}
    mill.close()


@pytest.mark.parametrize("call", ["median(v)", "max(d)", "sum(d)"])
def test_a_table_that_lacks_an_accumulator_begins_anew(tmp_path: Path, call: str) -> None:
    mill = opened(tmp_path, _selected("sum(v), count(*)", "groups"))
    feed(mill, 0, 14)
    statement = f"CREATE OR REPLACE QUERY q AS {_selected(f'sum(v), {call}', 'groups')}"
    assert "begins anew" in {one.effect for one in mill.statements.explain_replace(statement)}
    mill.execute(statement)
    mill.dispatcher.run_all()
    assert _table(mill) == []
    mill.close()
