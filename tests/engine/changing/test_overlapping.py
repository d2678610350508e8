"""Joins over overlapping sets of streams in a mill: who lives where, and who waits for whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.testing import Clock, inline_pool, open_mill
from support.engine import feed_rows, finish

SECOND = 1_000_000
STREAMS = "".join(f"CREATE STREAM {name} (k int, v int, ts timestamp) ORDER BY ts;" for name in "abcd")
HOUSE = "joins of a, b and c on k = k = k"


def join_of(names: str, seconds: int = 4, key: str = "k") -> str:
    items = ", ".join(f"{name}.v AS v{name}" for name in names)
    sources = ", ".join(f"{name} [RANGE {seconds} SECONDS]" for name in names)
    where = " AND ".join(f"{names[0]}.{key} = {name}.{key}" for name in names[1:])
    return f"SELECT {items} FROM {sources} WHERE {where}"


class Stage:
    """A mill whose queries come and go, and which starts anew from what its home keeps."""

    def __init__(self, folder: Path, subtasks: int = 1, placement: str = "auto") -> None:
        self.folder, self.subtasks, self.placement = folder, subtasks, placement
        self.clock, self.live, self.fed = Clock(), dict[str, str](), 0
        self.open()

    def open(self) -> None:
        self.mill = open_mill(
            home=self.folder,
            pool=inline_pool(2),
            clock=self.clock,
            subtasks=self.subtasks,
            placement=self.placement,
            read_sources=False,
        )
        self.mill.execute(STREAMS + "".join(f"CREATE QUERY {n} AS {t};" for n, t in self.live.items()))
        self.mill.open()

    def restart(self, *, checkpoint: bool = True) -> None:
        self.mill.close(checkpoint=checkpoint)
        self.open()

    def create(self, name: str, text: str) -> None:
        self.live[name] = text
        self.mill.execute(f"CREATE QUERY {name} AS {text}")

    def drop(self, name: str) -> None:
        del self.live[name]
        self.mill.execute(f"DROP QUERY {name}")

    def feed(self, seconds: int, names: str = "abcd") -> None:
        for _ in range(seconds):
            self.clock.now += SECOND
            for index, name in enumerate(names):
                if name in self.mill.running.streams:
                    rows = [((self.fed + index + n) % 3, self.fed + n, self.fed * SECOND) for n in range(4)]
                    feed_rows(self.mill, name, rows)
            self.fed += 1
            self.mill.dispatcher.run_all()

    def rows(self, name: str) -> list[tuple[object, ...]]:
        query = self.mill.queries[name]
        assert query.error is None, query.error
        return [(timed.ts, *timed.row) for timed in query.timed_rows()]

    def tasks(self) -> dict[str, tuple[tuple[str, ...], list[str]]]:
        """By task, the logs that it reads, and its queries."""
        return {
            task.id: (task.plan.task.inputs, sorted(log for _, log in task.plan.task.outputs))
            for task in self.mill.dispatcher.tasks.values()
        }


@pytest.mark.parametrize("subtasks", [1, 3])
def test_a_node_takes_in_and_lets_go_of_streams_and_others_give_what_they_give_alone(
    tmp_path: Path, subtasks: int
) -> None:
    alone, stage = Stage(tmp_path / "alone", subtasks), Stage(tmp_path / "shared", subtasks)
    for one in (alone, stage):
        one.create("abc", join_of("abc"))
        one.feed(6)
    stage.create("abd", join_of("abd", 3))
    stage.create("ab", join_of("ab", 2))
    assert stage.tasks() == {HOUSE: (tuple("abcd"), ["ab", "abc", "abd"])}
    # a and b are there already, in longer windows; of d nothing is.
    newest = 5 * SECOND
    assert stage.mill.queries["ab"].complete_from() == newest
    assert stage.mill.queries["abd"].complete_from() == newest + 3 * SECOND
    for one in (alone, stage):
        one.feed(4)
        one.restart(checkpoint=False)
        one.feed(3)
    assert stage.rows("abc") == alone.rows("abc") != []
    stage.drop("abc")
    assert stage.tasks() == {HOUSE: (tuple("abd"), ["ab", "abd"])}
    assert stage.mill.home.tasks[HOUSE]["cursors"].keys() == set("abd")
    before = len(stage.rows("abd"))
    stage.restart()
    stage.feed(5)
    assert stage.tasks() == {HOUSE: (tuple("abd"), ["ab", "abd"])}
    assert len(stage.rows("abd")) > before
    stage.create("again", join_of("bca"))
    assert stage.tasks() == {HOUSE: (tuple("abcd"), ["ab", "abd", "again"])}
    for one in (alone, stage):
        one.mill.close()


def test_a_query_does_not_wait_for_streams_of_others(tmp_path: Path) -> None:
    """d is silent, and says its own time: who joins it waits, and nobody else does."""
    stage = Stage(tmp_path)
    stage.create("abc", join_of("abc"))
    stage.create("abd", join_of("abd"))
    stage.feed(6, "abc")
    (task,) = stage.mill.dispatcher.tasks.values()
    assert not stage.rows("abd")
    assert max(int(str(row[0])) for row in stage.rows("abc")) == 5 * SECOND
    # Time passes for the one though there is something that waits for the other.
    assert task.due
    assert stage.mill.dispatcher.watermark("abc") == 5 * SECOND
    assert stage.mill.dispatcher.watermark("abd") < 0
    stage.restart()
    for number in range(6):
        feed_rows(stage.mill, "d", [(k, number, number * SECOND) for k in range(3)])
        stage.mill.dispatcher.run_all()
    late = stage.rows("abd")
    finish(stage.mill)
    whole = Stage(tmp_path / "in step")
    whole.create("abd", join_of("abd"))
    for number in range(6):
        for index, name in enumerate("abc"):
            rows = [((number + index + n) % 3, number + n, number * SECOND) for n in range(4)]
            if name in whole.mill.running.streams:
                feed_rows(whole.mill, name, rows)
        feed_rows(whole.mill, "d", [(k, number, number * SECOND) for k in range(3)])
    finish(whole.mill)
    assert stage.rows("abd") == whole.rows("abd")
    assert late == whole.rows("abd")[: len(late)] != []
    for one in (stage, whole):
        one.mill.close()


def test_who_ran_before_stays_where_it_is(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.create("ab", join_of("ab"))
    stage.feed(3)
    stage.create("abc", join_of("abc"))
    stage.create("ab2", join_of("ab", 2))
    own = {"joins of a and b on k = k": (tuple("ab"), ["ab", "ab2"]), HOUSE: (tuple("abc"), ["abc"])}
    assert stage.tasks() == own
    stage.restart()
    assert stage.tasks() == own
    stage.mill.close()


def test_a_node_that_is_not_split_by_key_takes_nobody_in(tmp_path: Path) -> None:
    stage = Stage(tmp_path, subtasks=4, placement="cube")
    stage.create("abc", join_of("abc"))
    stage.restart()
    stage.placement = "auto"
    stage.restart()
    stage.create("abd", join_of("abd"))
    assert len(stage.tasks()) == 2
    stage.feed(6)
    assert stage.rows("abd")
    stage.mill.close()


@pytest.mark.parametrize(
    "other",
    [
        join_of("abd", key="v"),
        join_of("ad"),
        join_of("ab", 60),
        "SELECT a.v FROM a [RANGE 4 SECONDS], b [ROWS 9] WHERE a.k = b.k",
        "SELECT a.v FROM a [RANGE 4 SECONDS], b [RANGE 4 SECONDS], d [RANGE 4 SECONDS]"
        " WHERE a.k = b.k AND b.k = d.k AND a.v = d.v",
    ],
    ids=["another key", "one stream in common", "longer windows", "rows are counted", "two keys"],
)
def test_who_would_share_little_lives_alone(tmp_path: Path, other: str) -> None:
    stage = Stage(tmp_path)
    stage.create("abc", join_of("abc"))
    stage.create("other", other)
    assert sorted(names for _, names in stage.tasks().values()) == [["abc"], ["other"]]
    stage.mill.close()


def test_explain_says_what_is_shared(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.create("abc", join_of("abc"))
    stage.create("abd", join_of("abd"))
    words = stage.mill.queries["abd"].explain().replace("│", " ").split()
    assert "67% of what it would keep by itself is kept for others too" in " ".join(words)
    stage.mill.close()


@pytest.mark.parametrize("subtasks", [1, 3])
def test_joins_that_ask_for_unmatched_rows_have_a_node_of_their_own_and_nobody_moves_for_them(
    tmp_path: Path, subtasks: int
) -> None:
    outer = (
        "SELECT a.v AS va, b.v AS vb "
        "FROM a [RANGE 1 SECONDS] LEFT JOIN b [RANGE 1 SECONDS] ON a.k = b.k AND a.v > b.v"
    )
    apart, stage = Stage(tmp_path / "apart", subtasks), Stage(tmp_path / "shared", subtasks)
    pair = "joins of a and b on k = k"
    stage.create("abc", join_of("abc"))
    for one in (apart, stage):
        one.create("ab", join_of("ab", 3))
    apart.create("outer_ab", outer)
    for one in (apart, stage):
        one.feed(4)
    stage.create("outer_ab", outer)
    assert stage.tasks() == {HOUSE: (tuple("abc"), ["ab", "abc"]), pair: (("a", "b"), ["outer_ab"])}
    for one in (apart, stage):
        one.feed(3)
        one.restart(checkpoint=False)
    # Who comes while it is there finds the state of its own kind, and stays when it has gone.
    stage.create("late", join_of("ab", 2))
    expected = {HOUSE: (tuple("abc"), ["ab", "abc"]), pair: (("a", "b"), ["late", "outer_ab"])}
    assert stage.tasks() == expected
    for one in (apart, stage):
        one.feed(3)
    found = stage.rows("outer_ab")
    assert found
    assert found == [row for row in apart.rows("outer_ab") if row in found]
    stage.drop("outer_ab")
    assert stage.tasks() == {HOUSE: (tuple("abc"), ["ab", "abc"]), pair: (("a", "b"), ["late"])}
    apart.drop("outer_ab")
    stage.restart()
    for one in (apart, stage):
        one.feed(3)
        finish(one.mill)
    assert stage.rows("ab") == apart.rows("ab") != []
    for one in (apart, stage):
        one.mill.close()


@pytest.mark.parametrize("subtasks", [1, 3])
def test_the_join_that_founded_a_node_finds_it_as_it_was_when_it_comes_back(
    tmp_path: Path, subtasks: int
) -> None:
    """A node keeps the name of its founder, so nobody may bring the founder's streams on other keys."""
    stage = Stage(tmp_path, subtasks)
    stage.create("abc", join_of("abc"))
    stage.create("abd", join_of("abd"))
    stage.drop("abc")
    sources = ", ".join(f"{name} [RANGE 4 SECONDS]" for name in "bdc")
    stage.create("bdc", f"SELECT b.v AS vb FROM {sources} WHERE b.k = d.k AND b.k = c.v")
    stage.feed(2)
    other = "joins of b, c and d on k = v = k"
    assert stage.tasks() == {HOUSE: (tuple("abd"), ["abd"]), other: (tuple("bcd"), ["bdc"])}
    stage.create("back", join_of("abc"))
    expected = {HOUSE: (tuple("abcd"), ["abd", "back"]), other: (tuple("bcd"), ["bdc"])}
    assert stage.tasks() == expected
    stage.restart()
    assert stage.tasks() == expected
    stage.mill.close()
