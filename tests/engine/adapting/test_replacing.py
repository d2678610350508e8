"""Units get other subtasks while they run: their state follows, and nothing of it is seen in the results."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.errors import SlicemillError
from slicemill.plan.placement import ONE_SUBTASK, Placement, PlacementKind, former_subtasks, placements_of
from slicemill.runtime.rescale import can_change
from slicemill.runtime.tasks import RunningTask
from slicemill.storage.changes import Change
from slicemill.storage.home import Home
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows, finish

STREAMS = """
CREATE STREAM a (k int, name varchar, v int, ts timestamp micros) ORDER BY ts;
CREATE STREAM b (k int, name varchar, w int, ts timestamp micros) ORDER BY ts;
CREATE STREAM c (k int, name varchar, x int, ts timestamp micros) ORDER BY ts;
"""
WINDOWS = "a [RANGE 40 MICROSECONDS], b [RANGE 20 MICROSECONDS]"
QUERIES = {
    "short": f"SELECT a.k, a.v, b.w FROM {WINDOWS} WHERE a.k = b.k AND a.v > 20",
    "long": f"SELECT a.v, b.w FROM {WINDOWS.replace('20', '90')} WHERE a.k = b.k",
    "text": f"SELECT a.v, b.w, b.ts FROM {WINDOWS} WHERE a.name = b.name AND a.k = b.k",
    "theta": f"SELECT a.v, b.w FROM {WINDOWS} WHERE a.v < b.w AND a.k <> b.k",
    "three": "SELECT a.v, b.w, c.x FROM a [RANGE 12 MICROSECONDS], b [RANGE 9 MICROSECONDS], "
    "c [RANGE 7 MICROSECONDS] WHERE a.k = b.k AND b.k = c.k",
    "named": "SELECT a.v, b.w, c.x FROM a [RANGE 8 MICROSECONDS], b [RANGE 9 MICROSECONDS], "
    "c [RANGE 11 MICROSECONDS] WHERE a.name = b.name AND b.k = c.k AND a.v < c.x",
    "groups": "SELECT a.k, count(*) AS n, sum(b.w) AS s FROM a [RANGE 20 MICROSECONDS SLIDE 3 MICROSECONDS], "
    "b [RANGE 12 MICROSECONDS] WHERE a.k = b.k GROUP BY a.k",
    "grouped": "SELECT a.name, b.k, max(b.w) AS m FROM a [RANGE 7 MICROSECONDS], b [RANGE 9 MICROSECONDS] "
    "WHERE a.name = b.name AND a.k = b.k GROUP BY a.name, b.k",
    "counted": "SELECT a.v, b.w FROM a [ROWS 7], b [RANGE 20 MICROSECONDS] WHERE a.v < b.w",
}
SCRIPT = STREAMS + "".join(f"CREATE QUERY {name}_ AS {text};" for name, text in QUERIES.items())


class Steps:
    """A mill over which things happen; `seed` says what is fed, and by what it is disturbed."""

    def __init__(self, folder: Path, seed: int, subtasks: int, script: str = SCRIPT) -> None:
        self.folder, self.subtasks, self.script = folder, subtasks, script
        self.rows, self.chooser = random.Random(seed), random.Random(seed)
        self.clock, self.since, self.pool = Clock(), 0, inline_pool()
        self.changed = 0
        self.open()

    def open(self) -> None:
        self.mill = fed_mill(self.folder, self.clock, self.pool, self.subtasks)
        self.mill.execute(self.script)
        self.mill.open()

    def feed(self) -> None:
        for stream in ("a", "b", "c"):
            rows: list[tuple[Any, ...]] = []
            for i in range(12):
                # Several tuples of a time: their order is that of arrival.
                ts = self.since + i // 2
                rows.append(
                    (self.rows.randrange(5), f"n{self.rows.randrange(3)}", self.rows.randrange(100), ts)
                )
            feed_rows(self.mill, stream, rows)
        self.since += 6

    def run(self) -> None:
        self.mill.dispatcher.run_all()

    def some(self) -> None:
        self.mill.dispatcher.run_some()

    def place(self) -> None:
        task = self.chooser.choice(self.mill.dispatcher.running.tasks)
        placements = possible(task, self.chooser.randint(1, 6))
        if placements:
            placement = self.chooser.choice(placements)
            assert self.mill.rescaler.rescale(task, placement)
            self.changed += 1
            assert self.mill.dispatcher.tasks[task.id].subtasks == placement.subtasks

    def lose(self) -> None:
        self.pool.lose(self.chooser.randrange(2))
        with self.mill.dispatcher.paused():
            self.mill.dispatcher._take(self.pool.wait(0))

    def checkpoint(self) -> None:
        self.mill.dispatcher.checkpoint_all()

    def restart(self) -> None:
        self.mill.close(checkpoint=self.chooser.random() < 0.5)
        self.open()

    def results(self) -> dict[str, list[tuple[int, int, tuple[Any, ...]]]]:
        """Rows in order, with their numbers."""
        finish(self.mill)
        found = {}
        for name, query in self.mill.queries.items():
            assert query.error is None, query.error
            log = query.log
            seqs = [seq for epoch in log.epochs() for seq in log.read(epoch).column("_seq").to_pylist()]
            rows = query.timed_rows()
            found[name] = [(timed.ts, seq, timed.row) for timed, seq in zip(rows, seqs, strict=True)]
        return found


def possible(task: RunningTask, subtasks: int) -> list[Placement]:
    plan = task.plan
    found = placements_of(plan.task, plan.graph, subtasks)
    return [
        one for one in found if one.exchanges != plan.exchanges and can_change(plan.task, plan.graph, one)
    ]


ACTIONS = st.sampled_from(["feed", "feed", "run", "some", "place", "place", "lose", "checkpoint", "restart"])


def run(seed: int, subtasks: int, steps: list[str], *, disturbed: bool, script: str = SCRIPT) -> Any:
    with TemporaryDirectory() as folder:
        mill = Steps(Path(folder), seed, subtasks, script)
        try:
            for step in ["feed", *steps, "feed", "run"]:
                if disturbed or step == "feed":
                    getattr(mill, step)()
            return mill.results()
        finally:
            mill.mill.close()


@settings(max_examples=12)
@given(st.integers(0, 2**32), st.integers(1, 4), st.lists(ACTIONS, max_size=20))
def test_results_are_those_of_one_subtask(seed: int, subtasks: int, steps: list[str]) -> None:
    assert run(seed, subtasks, steps, disturbed=True) == run(seed, 1, steps, disturbed=False)


@pytest.mark.slow_cpu
@example(0, [])
@settings(max_examples=3)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(["feed", "run", "place", "lose"]), max_size=8))
def test_a_crash_beside_the_record_changes_nothing(seed: int, steps: list[str]) -> None:
    """Killed just before the record of a change, or just after it."""
    expected = run(seed, 1, [*steps, "feed", "feed"], disturbed=False)
    for written in (False, True):
        with TemporaryDirectory() as folder:
            works = Steps(Path(folder), seed, 2)
            for step in ["feed", *steps, "feed", "run"]:
                getattr(works, step)()
            task = works.mill.dispatcher.running.writers["long_"]
            chosen = possible(task, 3)
            commit = Home.commit

            def dying(home: Home, change: Change, commit: Any = commit, written: bool = written) -> None:
                changing = any("placement" in fields for fields in change.tasks.values())
                if written or not changing:
                    commit(home, change)
                if changing:
                    raise KeyboardInterrupt

            with mock.patch.object(Home, "commit", dying), pytest.raises(KeyboardInterrupt):
                works.mill.rescaler.rescale(task, chosen[-1])
            works.mill.close(checkpoint=False)
            works.open()
            subtasks = works.mill.dispatcher.tasks[task.id].subtasks
            assert subtasks == (chosen[-1].subtasks if written else task.subtasks)
            for step in ("feed", "run", "feed", "run"):
                getattr(works, step)()
            try:
                assert works.results() == expected
            finally:
                works.mill.close()


def test_a_change_is_one_record_and_nothing_is_replayed(tmp_path: Path) -> None:
    works = Steps(tmp_path, 1, 2)
    with works.mill as mill:
        works.feed()
        works.run()
        task = mill.dispatcher.running.writers["long_"]
        (by_time,) = [one for one in possible(task, 3) if one.kind is PlacementKind.TIME]
        mill.dispatcher.checkpoint_all()
        changes: list[Change] = []
        commit = Home.commit
        with mock.patch.object(Home, "commit", lambda home, one: (changes.append(one), commit(home, one))[1]):
            assert mill.rescaler.rescale(task, by_time)
        (fields,) = [change.tasks[task.id] for change in changes if change]
        assert fields["placement"]["kind"] == "time" and fields["checkpoint"]["placement"]["kind"] == "key"
        assert len(fields["checkpoint"]["files"]) == 2
        fresh = mill.dispatcher.tasks[task.id]
        assert fresh is not task and fresh.subtasks == 3 and fresh.is_checkpoint_outdated
        restore = fresh._restore(1)
        assert restore.before == former_subtasks(Placement.of(task.plan.exchanges).plain())
        assert not any(span.epochs for span in restore.replay.values())
        works.feed()
        works.run()
        mill.dispatcher.checkpoint_all()
        assert "placement" not in fresh.fields["checkpoint"] and not fresh.is_checkpoint_outdated


def test_what_is_kept_by_others_cannot_follow(tmp_path: Path) -> None:
    sums = (
        STREAMS + "CREATE QUERY sums AS SELECT k, sum(v) OVER (PARTITION BY k ROWS 9 PRECEDING) AS s FROM a;"
    )
    works = Steps(tmp_path, 1, 2, sums)
    with works.mill as mill:
        (task,) = mill.dispatcher.running.tasks
        with pytest.raises(
            SlicemillError, match="cannot change from by key, 2 subtasks to one subtask while it runs"
        ):
            mill.rescaler.rescale(task, ONE_SUBTASK)
