"""Queries that fail and are tried again: from where they stood, or anew; others see nothing of it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from recovery.dying import Death, Died, dying
from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.lifecycle.pause_and_retry import (
    FIRST_PAUSE_S,
    MOST_STALLS,
    MOST_TRIES,
    LifecycleState,
    QueryStatus,
)
from slicemill.runtime import tasks as task
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
DECLARED = """
CREATE STREAM s (at timestamp, k int, v int) ORDER BY at;
CREATE FUNCTION fragile(x int) RETURNS int LANGUAGE PYTHON AS 'fragile_on_engine:fragile';
"""
ALONE = "CREATE QUERY q AS SELECT k, sum(fragile(v)) OVER (PARTITION BY k ROWS 2 PRECEDING) AS n FROM s;"
BESIDE = "CREATE QUERY other AS SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS n FROM s;"
ROWS = [(second * SECOND, second % 3, second) for second in range(1, 31)]


@pytest.fixture
def down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file; while it is there, what the function calls is down."""
    flag = tmp_path / "down"
    (tmp_path / "fragile_on_engine.py").write_text(
        "import os\n"
        "def fragile(x):\n"
        "    if os.path.exists(os.environ['FRAGILE_IS_DOWN']):\n"
        "        raise ValueError('it is down')\n"
        "    return x\n"
        "def spinning(x):\n"
        "    while os.path.exists(os.environ['FRAGILE_IS_DOWN']):\n"
        "        pass\n"
        "    return x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FRAGILE_IS_DOWN", str(flag))  # a module is imported once for all tests
    return flag


class Home:
    """A mill in a folder that can be closed and opened again."""

    def __init__(self, folder: Path, esl: str) -> None:
        self.folder, self.esl, self.clock = folder, DECLARED + esl, Clock(SECOND)
        self.mill = self._opened()

    def _opened(self) -> Mill:
        mill = fed_mill(self.folder, self.clock, inline_pool())
        mill.execute(self.esl)
        mill.open()
        return mill

    def reopen(self, *, checkpoint: bool) -> None:
        self.mill.close(checkpoint=checkpoint)
        self.mill = self._opened()

    def feed(self, first: int, last: int) -> None:
        for row in ROWS[first:last]:
            self.clock.now = max(self.clock.now, row[0])
            feed_rows(self.mill, "s", [row])
            self.mill.dispatcher.run_all()

    def wait(self, seconds: float) -> QueryStatus:
        """Time passes, and the mill looks at what has failed."""
        self.clock.now += int(seconds * SECOND)
        self.mill.dispatcher.look()
        self.mill.dispatcher.run_all()
        return self.life()

    def life(self, name: str = "q") -> QueryStatus:
        return self.mill.queries[name].status()

    def rows(self, name: str = "q") -> list[tuple[object, ...]]:
        return [(timed.ts, *timed.row) for timed in self.mill.queries[name].timed_rows()]


def expected(tmp_path: Path, name: str, first: int = 0) -> list[tuple[object, ...]]:
    """What a query gives that nobody disturbs."""
    home = Home(tmp_path / f"alone {name} {first}", BESIDE + (ALONE if name == "q" else ""))
    home.mill.execute("DROP QUERY q" if name == "q" and first else "SET policy = 'fcfs'")
    home.feed(0, first)
    if name == "q" and first:
        home.mill.execute(ALONE)
    home.feed(first, len(ROWS))
    finish(home.mill)
    found = home.rows(name)
    home.mill.close()
    return found


@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash"])
def test_a_query_alone_in_its_task_goes_on_from_where_it_stood(
    tmp_path: Path, down: Path, reopened: str
) -> None:
    home = Home(tmp_path / "home", ALONE)
    home.feed(0, 10)
    before = home.rows()
    down.touch()
    home.feed(10, 20)
    life = home.wait(1)
    assert life.state is LifecycleState.RESTARTING and life.failures == 1
    assert life.why is not None and "it is down" in life.why
    assert life.next_try_us == home.clock.now + FIRST_PAUSE_S * SECOND
    assert home.rows() == before
    if reopened:
        home.reopen(checkpoint=reopened == "checkpoint")
        assert home.life() == life
    assert home.wait(FIRST_PAUSE_S + 1).failures == 1  # tried, and down again
    assert home.wait(1).failures == 2
    down.unlink()
    life = home.wait(FIRST_PAUSE_S * 2 + 1)
    assert (life.state, life.failures, life.next_try_us) == (LifecycleState.RUNNING, 2, None)
    assert home.mill.queries["q"].error is None
    home.feed(20, 30)
    finish(home.mill)
    assert home.rows() == expected(tmp_path, "q")
    home.mill.close()


@pytest.mark.parametrize("reopened", ["", "checkpoint", "crash"])
def test_a_query_that_fails_beside_others_begins_anew_and_they_go_on(
    tmp_path: Path, down: Path, reopened: str
) -> None:
    home = Home(tmp_path / "home", BESIDE + ALONE)
    home.feed(0, 10)
    before = home.rows()
    down.touch()
    home.feed(10, 20)
    assert home.wait(1).state is LifecycleState.RESTARTING
    down.unlink()
    if reopened:
        home.reopen(checkpoint=reopened == "checkpoint")
    life = home.wait(FIRST_PAUSE_S)
    assert (life.state, life.failures) == (LifecycleState.RUNNING, 1)
    if reopened:
        home.reopen(checkpoint=reopened == "checkpoint")
    home.feed(20, 30)
    finish(home.mill)
    assert home.rows("other") == expected(tmp_path, "other")
    assert home.rows() == before + expected(tmp_path, "q", 20)
    home.mill.close()


def test_after_the_last_try_it_stays_failed_until_it_is_restarted(tmp_path: Path, down: Path) -> None:
    home = Home(tmp_path / "home", ALONE)
    home.feed(0, 5)
    down.touch()
    home.feed(5, 6)
    pauses = []
    for _ in range(MOST_TRIES):
        life = home.wait(1)
        assert life.next_try_us is not None
        pauses.append((life.next_try_us - home.clock.now) // SECOND)
        home.wait(pauses[-1])
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300]
    life = home.wait(1)
    assert (life.state, life.next_try_us) == (LifecycleState.FAILED, None)
    assert life.why is not None and "it is down" in life.why
    down.unlink()
    home.reopen(checkpoint=False)
    assert home.wait(10_000).state is LifecycleState.FAILED
    home.mill.queries["q"].restart()
    home.mill.dispatcher.run_all()
    assert home.life() == QueryStatus(LifecycleState.RUNNING)
    home.feed(6, 30)
    finish(home.mill)
    assert home.rows() == expected(tmp_path, "q")
    home.mill.close()


def test_a_query_comes_to_a_task_whose_queries_have_all_failed(tmp_path: Path, down: Path) -> None:
    home = Home(tmp_path / "home", ALONE)
    home.feed(0, 5)
    down.touch()
    home.feed(5, 10)
    home.wait(1)
    home.mill.execute(BESIDE)
    home.feed(10, 20)
    down.unlink()
    home.wait(FIRST_PAUSE_S)
    home.feed(20, 30)
    finish(home.mill)
    fresh = Home(tmp_path / "fresh", ALONE)
    fresh.feed(0, 10)
    fresh.mill.execute(BESIDE)
    fresh.feed(10, 30)
    finish(fresh.mill)
    assert home.rows("other") == fresh.rows("other")
    fresh.mill.close()
    home.mill.close()


def test_a_query_that_has_failed_goes_on_if_the_statement_of_another_one_is_interrupted(
    tmp_path: Path, down: Path
) -> None:
    home = Home(tmp_path / "home", ALONE)
    home.feed(0, 5)
    down.touch()
    home.feed(5, 10)
    home.wait(1)
    shutil.copytree(tmp_path / "home", tmp_path / "base")
    home.mill.home.close()
    counted = Death(journal_only=True)
    interrupted(tmp_path, "counted", counted)
    down.unlink()
    whole = expected(tmp_path, "q")
    for step in range(counted.steps):
        down.touch()
        left = interrupted(tmp_path, f"killed {step}", Death(step, journal_only=True))
        down.unlink()
        mill = Home(left, ALONE)
        mill.clock.now = home.clock.now
        mill.wait(FIRST_PAUSE_S * 4)
        mill.feed(10, 30)
        finish(mill.mill)
        assert mill.rows("q") == whole
        mill.mill.close()


def interrupted(tmp_path: Path, name: str, death: Death) -> Path:
    """Declare another query in a copy of a home; return what a kill leaves of the home."""
    folder = tmp_path / name
    shutil.copytree(tmp_path / "base", folder)
    home = Home(folder, ALONE)
    with dying(death), suppress(Died):
        home.mill.execute(BESIDE)
    left = folder.with_name(f"{name} left")
    shutil.copytree(folder, left)
    home.mill.home.close()
    return left


def test_only_what_has_failed_can_be_restarted(tmp_path: Path, down: Path) -> None:
    home = Home(tmp_path / "home", ALONE)
    with pytest.raises(SlicemillError, match="query q has not failed"):
        home.mill.execute("RESTART QUERY q")
    home.mill.close()


def test_a_query_that_stalls_three_times_in_a_row_stays_failed_until_it_is_restarted(
    tmp_path: Path, down: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "STEP_S", 0.4)
    spinning = "CREATE FUNCTION spinning(x int) RETURNS int LANGUAGE PYTHON AS 'fragile_on_engine:spinning';"
    home = Home(tmp_path / "home", spinning + ALONE.replace("fragile", "spinning"))
    down.touch()
    home.feed(0, 1)
    pauses = []
    for _ in range(MOST_STALLS - 1):
        life = home.wait(1)
        assert life.why is not None and life.why.startswith("one step took more than 0.4 s of processor time")
        assert life.next_try_us is not None
        pauses.append((life.next_try_us - home.clock.now) // SECOND)
        home.reopen(checkpoint=False)
        home.wait(pauses[-1])
    assert pauses == [5, 10]
    life = home.wait(1)
    assert (life.state, life.failures, life.next_try_us) == (LifecycleState.FAILED, MOST_STALLS, None)
    down.unlink()
    assert home.wait(10_000).state is LifecycleState.FAILED
    home.mill.execute("RESTART QUERY q")
    home.mill.dispatcher.run_all()
    assert home.life() == QueryStatus(LifecycleState.RUNNING)
    home.feed(1, len(ROWS))
    finish(home.mill)
    assert home.rows() == expected(tmp_path, "q")
    home.mill.close()
