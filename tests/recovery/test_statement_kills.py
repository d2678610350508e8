"""A statement that is interrupted is wholly there or not at all, whatever record it dies in."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from recovery.dying import AFTER, BEFORE, TORN, Death, Died, OneThreadPool, dying
from recovery.mixed_statements import (
    DECLARED_FIRST,
    Change,
    Declared,
    changes_possible,
    check_usable,
    feed,
    found_in,
    new_home,
    reopened,
)
from slicemill.storage.changes import Change as Record
from slicemill.storage.home import Home
from slicemill.storage.journal import JournalEndWriter
from slicemill.testing import Clock, inline_pool, open_mill

# Something of each kind that is there, and something that is not.
FIRST = (
    "CREATE FUNCTION f1 (x int) RETURNS int AS x + 1111",
    "CREATE VIEW v1 AS SELECT k, v FROM s [RANGE 5 SECONDS] WHERE v > 1111",
    "CREATE STREAM d1 AS SELECT at, k, v + 1111 AS v FROM s",
    "CREATE QUERY q1 AS SELECT k, sum(v + 1111) AS n FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "CREATE TABLE t1 (k bigint PRIMARY KEY, v bigint); INSERT INTO t1 VALUES (1111, 3)",
    "INSERT INTO t VALUES (1111, 0)",
    "CREATE ALERT a1 ON base WEBHOOK 'http://127.0.0.1:9/'",
)
DECLARED: Declared = {
    **DECLARED_FIRST,
    ("function", "f1"): (1111,),
    ("view", "v1"): (1111,),
    ("stream", "d1"): (1111,),
    ("query", "q1"): (1111, 1.0, False),
    ("table", "t1"): ((1111, 3),),
    ("table", "t"): ((1111, 0),),
    ("alert", "a1"): (),
}
CHANGES = {one.kind: one for one in changes_possible(DECLARED, random.Random(3))}
IN_SHORT = (
    "CREATE QUERY",
    "CREATE OR REPLACE QUERY",
    "DROP QUERY",
    "DROP and CREATE in one text",
    "declarations and rows in one text",
    "CREATE STREAM",
    "ALTER STREAM",
    "CREATE TABLE",
    "INSERT",
    "PAUSE",
    "DROP ALERT",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of a process that was killed while it had all of `DECLARED`."""
    folder = tmp_path_factory.mktemp("killed")
    new_home(folder / "home")
    mill = reopened(folder / "home")
    for text in FIRST:
        mill.execute(text)
    feed(mill, 50)
    assert found_in(mill) == DECLARED
    shutil.copytree(folder / "home", folder / "killed")
    mill.close()
    return folder / "killed"


def steps_of(home: Path, scratch: Path, change: Change, death: Death) -> Path:
    """Run a statement in a copy of a home until it dies; return what is left, as a home of its own."""
    shutil.copytree(home, scratch / "home")
    mill = reopened(scratch / "home", OneThreadPool())
    with dying(death):
        try:
            mill.execute(change.text)
        except Died:
            assert death.dead
        else:
            assert not death.dead
    shutil.copytree(scratch / "home", scratch / "left")
    mill.home.close()  # work in progress has died, too: a mill that closes would wait for it
    return scratch / "left"


def check_all_or_nothing(left: Path, change: Change, before: Declared, *, done: bool) -> None:
    """The statement is wholly there or absent; if it is absent, it can be run."""
    mill = reopened(left)
    found = found_in(mill)
    assert found in ((change.after,) if done else (before, change.after)), change.text
    if found == before and not done:
        mill.execute(change.text)
        assert found_in(mill) == change.after
    feed(mill, 1_000_000)
    assert all(query.error is None for query in mill.queries.values())
    mill.close()


@pytest.mark.parametrize("kind", IN_SHORT)
def test_a_statement_is_whole_or_absent_whatever_record_is_interrupted(
    kind: str, home: Path, tmp_path: Path
) -> None:
    change = CHANGES[kind]
    counted = Death(journal_only=True)
    steps_of(home, tmp_path / "counted", change, counted)
    assert counted.steps >= 1
    for step, when in itertools.product(range(counted.steps), (BEFORE, TORN, AFTER)):
        death = Death(step, when, journal_only=True)
        left = steps_of(home, tmp_path / f"{step}-{when}", change, death)
        assert death.dead
        # The last record is the statement: once it is written, the statement is there.
        check_all_or_nothing(left, change, DECLARED, done=when == AFTER and step == counted.steps - 1)


@pytest.mark.parametrize("kind", CHANGES)
def test_every_kind_of_statement_is_one_record(kind: str, home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "home")
    mill = reopened(tmp_path / "home")
    mill.dispatcher.checkpoint_all()  # so that nothing is left to be written before tasks change
    records: list[Record] = []
    commit = mill.home.commit
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Home, "commit", lambda _, change: records.append(change) or commit(change))
        mill.execute(CHANGES[kind].text)
    saying = [
        one for one in records if one.catalog or one.created or one.dropped_logs or one.tables or one.alerts
    ]
    assert len(saying) == (2 if kind == "DROP and CREATE in one text" else 0 if kind in ("PAUSE",) else 1)
    assert found_in(mill) == CHANGES[kind].after
    mill.close()


def half_done(home: Path, *records: Record) -> None:
    """Write records as earlier versions did before they wrote the text of a statement."""
    opened = Home(home)
    opened.open()
    for record in records:
        opened.commit(record)
    opened.close()


COLUMNS = pa.schema([("at", pa.timestamp("us")), ("other", pa.string())])


@pytest.mark.parametrize("drops_first", [False, True])
def test_a_name_that_an_earlier_version_left_half_created_can_be_used(
    home: Path, tmp_path: Path, drops_first: bool
) -> None:
    shutil.copytree(home, tmp_path / "home")
    mill = reopened(tmp_path / "home")
    task = dict(mill.home.tasks[mill.dispatcher.running.writers["q1"].id])
    mill.close()
    half_done(
        tmp_path / "home",
        Record(created={"q2": COLUMNS, "s_2": COLUMNS, "s_2_errors": COLUMNS, "q3": COLUMNS}),
        Record(
            tasks={"u9": {**task, "outputs": ["q3"], "since": {"q3": None}}},
            streams={"s_2": {"watermark": 7}},
        ),
    )
    mill = reopened(tmp_path / "home")
    assert found_in(mill) == DECLARED
    assert not {"q2", "q3", "s_2", "s_2_errors"} & set(mill.home.logs)
    assert "u9" not in mill.home.tasks and "s_2" not in mill.home.streams
    mill.execute("CREATE STREAM s_2 (at timestamp, k int) ORDER BY at; CREATE QUERY q2 AS SELECT k FROM s_2")
    if drops_first:
        mill.execute("DROP QUERY q2")
    mill.execute("CREATE OR REPLACE QUERY q3 AS SELECT k FROM s_2")
    mill.close()
    check_usable(tmp_path / "home", tmp_path / "copy")


def test_the_log_of_a_query_half_dropped_is_used_again(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "home")
    mill = reopened(tmp_path / "home")
    task = mill.dispatcher.running.writers["q1"].id
    mill.close()
    half_done(tmp_path / "home", Record(dropped_tasks=[task], dropped_logs=["q1"]))
    mill = reopened(tmp_path / "home")
    assert found_in(mill) == DECLARED
    mill.execute("DROP QUERY q1; CREATE QUERY q1 AS SELECT k AS other FROM s")
    mill.close()


def test_a_dropped_stream_keeps_its_rows(tmp_path: Path) -> None:
    with open_mill(home=tmp_path, pool=inline_pool(), clock=Clock(), read_sources=False) as mill:
        mill.execute("CREATE STREAM s (at timestamp) ORDER BY at RETAIN 1 DAYS")
        mill.execute("DROP STREAM s")
    with open_mill(home=tmp_path, pool=inline_pool(), clock=Clock(), read_sources=False) as mill:
        assert "s" in mill.home.logs


def test_an_interrupt_within_any_commit_of_a_statement_is_raised_as_it_is(home: Path, tmp_path: Path) -> None:
    change = CHANGES["DROP and CREATE in one text"]
    for interrupted in itertools.count():
        shutil.copytree(home, tmp_path / f"{interrupted}")
        mill, notes = reopened(tmp_path / f"{interrupted}", OneThreadPool()), itertools.count()

        def note(_: JournalEndWriter, __: int, at: int = interrupted, notes: Iterator[int] = notes) -> None:
            if next(notes) == at:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(JournalEndWriter, "note", note)
            try:
                mill.execute(change.text)
            except KeyboardInterrupt:
                pass
            else:
                break
        mill.home.close()
        check_all_or_nothing(tmp_path / f"{interrupted}", change, DECLARED, done=False)
    mill.close()
    assert interrupted >= 2
