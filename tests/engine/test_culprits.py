"""A step that several queries share fails; only the queries that cause it are stopped."""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from slicemill.api.mill import Mill
from slicemill.runtime import culprits
from slicemill.runtime import tasks as task
from slicemill.runtime.culprits import CulpritSearch
from slicemill.testing import Clock, inline_pool, open_mill
from support.engine import checkpoint_twice, fed_mill, feed_rows, finish
from support.fork_pool import ForkPool

SECOND = 1_000_000
BAD = 13
STREAMS = """
CREATE STREAM s (at timestamp, k int, v int) ORDER BY at;
CREATE STREAM u (at timestamp, k int, w int) ORDER BY at;
CREATE FUNCTION same(x int) RETURNS int LANGUAGE PYTHON AS 'guilty_functions:same';
"""
# Each kind of shared step, for a query with a number and its value.
KINDS = {
    "windows": "SELECT k, sum({v}) AS r FROM s [RANGE {n} SECONDS SLIDE 2 SECONDS] WHERE {v} > -1 GROUP BY k",
    "over": "SELECT k, sum({v}) OVER (PARTITION BY k RANGE {n} SECONDS PRECEDING) AS r FROM s",
    "sessions": "SELECT k, sum({v}) AS r FROM s [SESSION {n} SECONDS] WHERE {v} > -1 GROUP BY k",
    "selection": "SELECT k, v AS r FROM s WHERE {v} + {n} > 0",
    "join": "SELECT s.k, s.v AS r FROM s [RANGE {n} SECONDS], u [RANGE {n} SECONDS] "
    "WHERE s.k = u.k AND {v} <> u.w",
    "join of three": "SELECT s.k, s.v AS r FROM s [RANGE {n} SECONDS], u [RANGE {n} SECONDS], "
    "s [RANGE 1 SECOND] AS t WHERE s.k = u.k AND u.k = t.k AND {v} <> u.w",
}
NAMES = [f"q{number}" for number in range(8)]
ROWS = [(second * SECOND, second % 3, second) for second in range(1, 25)]


@dataclass
class Function:
    """Effect of the test function on the bad value: an exception, a stall, or a stuck loop."""

    on_bad: Callable[[], None]


def fails() -> None:
    raise ValueError("13 is bad luck")


FUNCTION = Function(fails)


def same(values: pa.Array) -> pa.Array:
    if BAD in values.to_pylist():
        FUNCTION.on_bad()
    return values


@pytest.fixture(autouse=True)
def function(monkeypatch: pytest.MonkeyPatch) -> Function:
    made = ModuleType("guilty_functions")
    vars(made)["same"] = same
    monkeypatch.setitem(sys.modules, made.__name__, made)
    FUNCTION.on_bad = fails
    return FUNCTION


def script(kind: str, guilty: Collection[str], names: Iterable[str] = NAMES) -> str:
    prefix = "s." if kind.startswith("join") else ""
    made = [STREAMS]
    for number, name in enumerate(NAMES):
        value = f"same({prefix}v)" if name in guilty else f"{prefix}v"
        query = KINDS[kind].format(v=value, n=number + 2)
        made += [f"CREATE QUERY {name} AS {query};"] if name in names else []
    return "".join(made)


def opened(home: Path, esl: str, subtasks: int = 1) -> Mill:
    mill = fed_mill(home, Clock(), inline_pool(), subtasks)
    mill.execute(esl)
    mill.open()
    return mill


def feed(mill: Mill, first: int, last: int) -> None:
    for begin in range(first, last, 4):
        part = ROWS[begin : min(begin + 4, last)]
        feed_rows(mill, "s", part)
        if "u" in mill.running.streams:
            feed_rows(mill, "u", [(at, k, 0) for at, k, _ in part])
        mill.dispatcher.run_all()


def rows(mill: Mill, name: str) -> list[tuple[object, ...]]:
    return [(timed.ts, *timed.row) for timed in mill.queries[name].timed_rows()]


def errors(mill: Mill) -> set[str]:
    return {name for name, query in mill.queries.items() if query.error}


def rows_without(folder: Path, kind: str, guilty: Collection[str]) -> dict[str, list[tuple[object, ...]]]:
    """Return the results of the other queries in a mill that never had the guilty ones."""
    names = [name for name in NAMES if name not in guilty]
    with opened(folder / "without", script(kind, (), names)) as mill:
        feed(mill, 0, len(ROWS))
        finish(mill)
        return {name: rows(mill, name) for name in names}


@pytest.mark.parametrize("subtasks", [1, 2])
@pytest.mark.parametrize("guilty", [["q5"], ["q0", "q6"]], ids=["one culprit", "two culprits"])
@pytest.mark.parametrize("kind", KINDS)
def test_only_the_culprits_of_a_shared_step_are_stopped(
    tmp_path: Path, kind: str, guilty: list[str], subtasks: int
) -> None:
    expected = rows_without(tmp_path, kind, guilty)
    assert all(expected.values())
    with opened(tmp_path / "home", script(kind, guilty), subtasks) as mill:
        feed(mill, 0, len(ROWS))
        finish(mill)
        assert errors(mill) == set(guilty)
        assert all("13 is bad luck" in (mill.queries[name].error or "") for name in guilty)
        assert {name: rows(mill, name) for name in expected} == expected


@pytest.mark.parametrize("kind", ["windows", "over", "join"])
def test_the_other_queries_go_on_after_a_crash(tmp_path: Path, kind: str) -> None:
    expected = rows_without(tmp_path, kind, ["q2"])
    mill = opened(tmp_path / "home", script(kind, ["q2"]))
    feed(mill, 0, 4)
    checkpoint_twice(mill)
    feed(mill, 4, 8)
    mill.close(checkpoint=False)
    mill = opened(tmp_path / "home", script(kind, ["q2"]))
    feed(mill, 8, 16)  # with the bad row
    assert errors(mill) == {"q2"}
    mill.close(checkpoint=False)  # the last checkpoint has state of the culprit
    mill = opened(tmp_path / "home", script(kind, ["q2"]))
    feed(mill, 16, len(ROWS))
    finish(mill)
    assert {name: rows(mill, name) for name in expected} == expected
    mill.close()


@pytest.mark.parametrize("steps", range(1, 12))
def test_a_crash_in_a_search_begins_the_search_again(tmp_path: Path, steps: int) -> None:
    expected = rows_without(tmp_path, "windows", ["q2"])
    mill = opened(tmp_path / "home", script("windows", ["q2"]))
    feed(mill, 0, 8)
    feed_rows(mill, "s", ROWS[8:16])
    for _ in range(steps):
        mill.dispatcher.run_some()
    mill.close(checkpoint=False)
    mill = opened(tmp_path / "home", script("windows", ["q2"]))
    mill.dispatcher.run_all()
    feed(mill, 16, len(ROWS))
    finish(mill)
    assert errors(mill) == {"q2"}
    assert {name: rows(mill, name) for name in expected} == expected
    mill.close()


@pytest.mark.parametrize("kind", ["windows", "over", "join"])
@pytest.mark.parametrize("how", ["restart", "replace", "alter"])
def test_a_culprit_begins_anew_beside_the_others(
    tmp_path: Path, kind: str, how: str, function: Function
) -> None:
    expected = rows_without(tmp_path, kind, ())
    with opened(tmp_path / "home", script(kind, ["q3"])) as mill:
        feed(mill, 0, 16)
        assert errors(mill) == {"q3"}
        if how == "replace":
            harmless = next(one for one in script(kind, []).split("CREATE QUERY ") if one.startswith("q3 "))
            mill.execute(f"CREATE OR REPLACE QUERY {harmless}")
        else:
            function.on_bad = lambda: None
            mill.execute("RESTART QUERY q3" if how == "restart" else "ALTER QUERY q3 SET (weight = 2)")
            if how == "alter":
                mill.execute("RESTART QUERY q3")
        feed(mill, 16, len(ROWS))
        finish(mill)
        assert errors(mill) == set()
        assert rows(mill, "q3")[-1] == expected.pop("q3")[-1]
        assert {name: rows(mill, name) for name in expected} == expected


def test_a_culprit_that_fails_again_is_stopped_again(tmp_path: Path) -> None:
    expected = rows_without(tmp_path, "windows", ["q3"])
    with opened(tmp_path / "home", script("windows", ["q3"])) as mill:
        feed(mill, 0, 12)
        feed(mill, 12, 16)
        mill.execute("RESTART QUERY q3")
        assert errors(mill) == set()
        feed(mill, 16, len(ROWS))
        mill.dispatcher.end_streams()
        mill.dispatcher.run_all()
        assert {name: rows(mill, name) for name in expected} == expected


@pytest.mark.parametrize("kind", ["windows", "over"])
def test_only_the_query_that_never_returns_is_stopped(
    tmp_path: Path, kind: str, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "STEP_S", 1.0)

    def never_returns() -> None:
        while True:
            pass

    function.on_bad = never_returns
    expected = rows_without(tmp_path, kind, ["q5"])
    with opened(tmp_path / "home", script(kind, ["q5"])) as mill:
        feed(mill, 0, len(ROWS))
        finish(mill)
        assert errors(mill) == {"q5"}
        assert "took more than 1 s of processor time" in (mill.queries["q5"].error or "")
        assert {name: rows(mill, name) for name in expected} == expected


def test_only_the_query_that_is_stuck_in_machine_code_is_stopped(
    tmp_path: Path, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "STEP_S", 0.7)

    function.on_bad = lambda: deque(repeat(0, 10**12), maxlen=0).clear()
    expected = rows_without(tmp_path, "windows", ["q5"])
    pool = ForkPool(1)
    mill = open_mill(home=tmp_path / "home", pool=pool, clock=Clock(), subtasks=1, read_sources=False)
    with mill:
        mill.execute(script("windows", ["q5"]))
        mill.open()
        feed(mill, 0, len(ROWS))
        finish(mill)
        assert set(pool.ended) == {signal.SIGPROF}
        assert errors(mill) == {"q5"}
        assert {name: rows(mill, name) for name in expected} == expected
    pool.stop()


def _trials(names: Collection[str], guilty: Collection[str]) -> tuple[CulpritSearch, list[tuple[str, ...]]]:
    search, trials = CulpritSearch(list(names)), []
    while not search.over:
        trials.append(search.trial)
        if set(guilty) & set(search.trial):
            search.failed(f"failed: {', '.join(search.trial)}")
        else:
            search.passed()
    return search, trials


def test_a_search_halves_the_suspects() -> None:
    search, trials = _trials("abcdefgh", "f")
    assert ["".join(trial) for trial in trials] == ["", "abcd", "ef", "e", "f", "gh"]
    assert search.guilty == {"f": "failed: f"}


def test_a_search_finds_all_culprits_with_few_trials() -> None:
    chooser = np.random.default_rng(7)
    names = [str(number) for number in range(256)]
    for count in (0, 1, 2, 5):
        guilty = set(chooser.choice(names, count, replace=False).tolist())
        search, trials = _trials(names, guilty)
        assert search.guilty.keys() == guilty
        assert len(trials) <= 10 + 2 * 8 * count


def test_a_search_ends_if_the_run_fails_without_any_suspect() -> None:
    search = CulpritSearch("abc")
    search.failed("no space")
    assert search.over
    assert search.guilty == dict.fromkeys("abc", "no space")


def test_a_search_stops_after_many_failed_trials() -> None:
    names = [str(number) for number in range(1000)]
    search, trials = _trials(names, names)
    assert len(trials) == 1 + culprits.MOST_FAILED_TRIALS
    assert search.guilty.keys() == set(names)


def test_a_failure_that_does_not_come_back_stops_nothing(tmp_path: Path, function: Function) -> None:
    left = iter(range(2))

    def fails_twice() -> None:
        if next(left, None) is not None:
            fails()

    function.on_bad = fails_twice
    with opened(tmp_path / "home", script("windows", ["q3"])) as mill:
        feed(mill, 0, len(ROWS))
        finish(mill)
        assert errors(mill) == set()
