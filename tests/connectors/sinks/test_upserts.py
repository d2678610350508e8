"""Upserts for a Python function: one row for each key of an epoch, and every epoch once despite crashes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sinks.logs import append, home_with, open_home
from slicemill.columns.arrow_schema import as_results
from slicemill.columns.rows import to_table
from slicemill.connectors.sinks.delivery import SinkRunner
from slicemill.connectors.sinks.memory import Upserts, UpsertSink, net_upserts
from slicemill.connectors.sinks.sink import SinkError
from slicemill.lifecycle.compaction import fold_epochs
from slicemill.storage.changes import Change
from slicemill.storage.filesystem import LOCAL
from slicemill.storage.home import Home
from slicemill.types import INT, VARCHAR, Column, Row, Schema, Timed, changelog
from storage.faulty_files import Crashed, crashes_of

COUNTS = changelog((Column("item", VARCHAR), Column("n", INT)), ("item",))
EPOCHS: list[list[Row]] = [
    [("insert", "a", 1), ("insert", "b", 1), ("update_before", "a", 1), ("update_after", "a", 2)],
    [("delete", "a", 2), ("update_before", "b", 1), ("update_after", "b", 5), ("insert", "c", 1)],
    [("insert", "a", 7), ("delete", "c", 1)],
]
AFTER = [[("a", 2), ("b", 1)], [("b", 5), ("c", 1)], [("a", 7), ("b", 5)]]


class Store:
    """SQLite table that contains the last epoch; it can fail at any step of its transaction."""

    def __init__(self, path: Path, die_at: str = "") -> None:
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.execute("CREATE TABLE IF NOT EXISTS q (item TEXT PRIMARY KEY, n INT)")
        self.database.execute("CREATE TABLE IF NOT EXISTS place (epoch INT)")
        self.epochs: list[int] = []
        self._die_at = die_at

    def step(self, name: str) -> None:
        if name == self._die_at:
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")
            raise Crashed

    def merge(self, upserts: Upserts) -> None:
        assert upserts.key == ("item",)
        self.step("before")
        self.database.execute("BEGIN")
        if upserts.whole:
            self.database.execute("DELETE FROM q")
        for row in upserts.rows.to_pylist():
            self.database.execute("DELETE FROM q WHERE item = ?", [row["item"]])
            if row["_op"] == "upsert":
                self.database.execute("INSERT INTO q VALUES (?, ?)", [row["item"], row["n"]])
            self.step("rows")
        self.database.execute("DELETE FROM place")
        self.database.execute("INSERT INTO place VALUES (?)", [upserts.epoch])
        self.step("epoch")
        self.database.execute("COMMIT")
        self.epochs.append(upserts.epoch)
        self.step("committed")

    def position(self) -> int | None:
        row = self.database.execute("SELECT epoch FROM place").fetchone()
        return None if row is None else int(row[0])

    def rows(self) -> list[Row]:
        return self.database.execute("SELECT item, n FROM q ORDER BY item").fetchall()


def changes(home: Home, rows: Sequence[Row]) -> None:
    append(home, [Timed(home.epoch * 1_000_000, row) for row in rows])


def deliver(home: Home, store: Store) -> None:
    with SinkRunner(home) as runner:
        runner.add("q", UpsertSink(store.merge, COUNTS, store.position))
        runner.deliver_new()


def test_a_function_gets_one_upsert_or_delete_for_each_key() -> None:
    found: list[Upserts] = []
    sink = UpsertSink(found.append, COUNTS)
    sink.deliver(3, 3, as_results(to_table([Timed(1, row) for row in EPOCHS[0]], COUNTS, [0] * 4)))
    (upserts,) = found
    assert (upserts.epoch, upserts.key, upserts.whole) == (3, ("item",), False)
    assert [tuple(row.values())[1:] for row in upserts.rows.to_pylist()] == [
        ("upsert", "b", 1),
        ("upsert", "a", 2),
    ]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 9)), max_size=20))
def test_upserts_have_the_net_effect_of_the_changes(steps: list[tuple[str, bool, int]]) -> None:
    table: dict[str, int] = {}
    rows: list[Row] = []
    for item, comes, n in steps:
        if item in table and comes:
            rows += [("update_before", item, table[item]), ("update_after", item, n)]
            table[item] = n
        elif item in table:
            rows.append(("delete", item, table.pop(item)))
        elif comes:
            rows.append(("insert", item, n))
            table[item] = n
    stored = as_results(to_table([Timed(1, row) for row in rows], COUNTS, [0] * len(rows)))
    net = net_upserts(stored, COUNTS).to_pylist()
    assert len({row["item"] for row in net}) == len(net)
    assert {row["item"]: row["n"] for row in net if row["_op"] == "upsert"} == table


def test_every_epoch_is_stored_once_after_a_failure_at_any_step_of_the_function(tmp_path: Path) -> None:
    for step in ("before", "rows", "epoch", "committed"):
        home = home_with(tmp_path / step, "q", COUNTS)
        path = tmp_path / f"{step}.db"
        for number, rows in enumerate(EPOCHS):
            changes(home, rows)
            dying, again = Store(path, die_at=step), Store(path)
            with suppress(Crashed):
                deliver(home, dying)
            assert dying.rows() in (AFTER[number - 1] if number else [], AFTER[number])
            deliver(home, again)
            assert again.rows() == AFTER[number], step
            assert len(dying.epochs) + len(again.epochs) == 1, step


def test_the_table_is_correct_after_a_crash_of_the_engine_at_any_step(tmp_path: Path) -> None:
    for number, files in enumerate(crashes_of(LOCAL)):
        home = home_with(tmp_path / str(number), "q", COUNTS)
        store = Store(tmp_path / f"{number}.db")
        changes(home, EPOCHS[0])
        with suppress(Crashed):
            dying = SinkRunner(home, files=files)
            dying.add("q", UpsertSink(store.merge, COUNTS, store.position))
            dying.deliver_new()
            for rows in EPOCHS[1:]:
                changes(home, rows)
                dying.deliver_new()
        committed = home.logs["q"].head
        home.close()
        deliver(open_home(home.folder), store)
        assert store.rows() == AFTER[committed - 1], (files.mode, number)
        assert store.epochs == sorted(set(store.epochs)), "an epoch came twice"


def test_a_table_that_missed_compacted_changes_gets_all_rows(tmp_path: Path) -> None:
    home = home_with(tmp_path / "home", "q", COUNTS)
    store = Store(tmp_path / "q.db")
    changes(home, EPOCHS[0])
    deliver(home, store)
    store.database.execute("INSERT INTO q VALUES ('old', 1)")
    for rows in EPOCHS[1:]:
        changes(home, rows)
    log = home.logs["q"]
    done = fold_epochs(log, COUNTS, log.epochs()[:2])
    home.commit(Change(based={"q": (done.upto, done.base)}))
    deliver(home, store)
    assert store.rows() == AFTER[-1]


@pytest.mark.parametrize("schema", [Schema(COUNTS.own.columns), changelog(COUNTS.own, None)])
def test_results_without_a_key_are_rejected(schema: Schema) -> None:
    receive: Callable[[Upserts], None] = lambda upserts: None  # noqa: E731
    with pytest.raises(SinkError, match="found by a key"):
        UpsertSink(receive, schema)
