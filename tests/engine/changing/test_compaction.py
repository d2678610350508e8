"""Changes that nobody reads any more are folded into the table that they came to: who reads it sees no more.

Runs, folds, restarts and crashes are put anywhere; each log comes to what it comes to without them.
"""

from __future__ import annotations

import asyncio
import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.api.mill import Mill
from slicemill.columns.rows import plain_rows
from slicemill.connectors.follow import Follower
from slicemill.connectors.sinks.memory import MemoryTable
from slicemill.lifecycle.compaction import fold_epochs
from slicemill.server.live_results import LiveResults
from slicemill.server.service import MillService
from slicemill.storage.filesystem import LOCAL
from slicemill.storage.home_reader import HomeReader
from slicemill.types import Row
from support.adhoc_queries import ask
from support.changelogs import TableOfNow
from support.engine import Clock, checkpoint_twice, fed_mill, feed_rows, finish, inline_pool

SECOND = 1_000_000


@pytest.fixture(autouse=True, scope="module")
def only_when_asked() -> Iterator[None]:
    """What is slow must not be collected meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slicemill.api.mill._BETWEEN_COLLECTIONS_S", math.inf)
        yield


SCRIPT = """
CREATE STREAM s (k int, v int, ts timestamp) ORDER BY ts;
CREATE STREAM totals AS SELECT k, count(*) AS n, sum(v) AS v FROM s GROUP BY k;
CREATE QUERY counted AS SELECT n, count(*) AS groups, first(k) AS ks FROM totals GROUP BY n;
CREATE QUERY best AS SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC) <= 2;
CREATE QUERY highest AS SELECT v FROM s ORDER BY v DESC LIMIT 3;
CREATE QUERY all_of_them AS SELECT count(*) AS n FROM s;
"""
CHANGING = ("counted", "best", "highest", "all_of_them")


@contextmanager
def opened(folder: Path, least_rows: int = 1, keep_us: int = 0) -> Iterator[Mill]:
    clock = Clock()
    with fed_mill(folder, clock, inline_pool()) as mill:
        mill.execute(SCRIPT)
        mill.open()
        mill.collector.keep_us, mill.collector.compactor.least_rows = keep_us, least_rows
        clock.now = 10**15
        yield mill


def feed(mill: Mill, begin: int, count: int = 6) -> None:
    """Rows that change groups over and over, one run each."""
    for at in range(begin, begin + count):
        feed_rows(mill, "s", [(at % 3, at * 7 % 11, at * SECOND)])
        mill.dispatcher.run_all()


def fold(mill: Mill, with_checkpoint: bool = True) -> None:
    """Fold all that can be folded now, log by log."""
    if with_checkpoint:
        checkpoint_twice(mill)
    for _ in mill.home.logs:
        mill.collect()
        mill.collector.compactor.wait()
    mill.collect()


def tables(mill: Mill) -> dict[str, Counter[Row]]:
    service = MillService(mill)
    found = {
        name: Counter(plain_rows(query.table(), query.schema.own))
        for name, query in mill.queries.items()
        if name in CHANGING
    }
    totals = ask("SELECT * FROM totals ORDER BY ALL", service.relation)
    return {**found, "totals": Counter(zip(*(totals.column(n).to_pylist() for n in "knv"), strict=True))}


def test_folded_changes_come_to_the_same_table_with_the_times_of_its_rows(tmp_path: Path) -> None:
    with opened(tmp_path) as mill:
        feed(mill, 0, 30)
        before = {name: mill.queries[name].table() for name in CHANGING}
        changes = {name: mill.home.logs[name].rows for name in (*CHANGING, "totals")}
        fold(mill)
        for name in CHANGING:
            log = mill.queries[name].log
            assert log.base == log.freed >= 0, name
            assert mill.queries[name].table().equals(before[name]), name
        held = {name: sum(rows.values()) for name, rows in tables(mill).items()}
        for name, rows in changes.items():
            assert mill.home.logs[name].rows == held[name] < rows, name
        feed(mill, 30, 9)
        grown = tables(mill)
        fold(mill)
        assert tables(mill) == grown


def test_changes_that_can_still_be_asked_for_stay(tmp_path: Path) -> None:
    with opened(tmp_path, keep_us=2 * 10**15) as mill:
        feed(mill, 0, 30)
        fold(mill)
        assert all(mill.queries[name].log.base is None for name in CHANGING)
        assert mill.home.logs["totals"].base is not None  # of a stream nobody asks for results


def test_few_changes_are_not_worth_a_file_and_a_large_table_waits_for_as_many_changes(tmp_path: Path) -> None:
    with opened(tmp_path, least_rows=100) as mill:
        feed(mill, 0, 20)
        log = mill.queries["all_of_them"].log
        fold(mill)
        assert log.base is None
        feed(mill, 20, 60)
        fold(mill)
        first = log.base
        assert first is not None and log.rows == 1
        feed(mill, 80, 20)
        fold(mill)
        assert log.base == first


def test_a_mill_that_starts_again_goes_on_from_the_base(tmp_path: Path) -> None:
    with opened(tmp_path) as mill:
        feed(mill, 0, 30)
        fold(mill)
        feed(mill, 30, 5)
        before = tables(mill)
    with opened(tmp_path) as again:
        assert tables(again) == before
        assert again.queries["best"].log.base is not None
        feed(again, 35, 10)
        fold(again)
        finish(again)
        found = tables(again)
    with tempfile.TemporaryDirectory() as other, opened(Path(other), least_rows=10**9) as plain:
        feed(plain, 0, 45)
        finish(plain)
        assert found == tables(plain)


def test_a_mill_that_dies_before_the_record_has_the_changes_and_no_file_more(tmp_path: Path) -> None:
    with opened(tmp_path) as mill:
        feed(mill, 0, 20)
        mill.checkpoint()
        query = mill.queries["best"]
        before, files = tables(mill), set(LOCAL.names(query.log.folder))
        fold_epochs(query.log, query.schema, query.log.epochs())
        assert len(set(LOCAL.names(query.log.folder)) - files) == 1
        folder = query.log.folder
    with opened(tmp_path) as again:
        assert again.queries["best"].log.base is None and tables(again) == before
        assert not any(name.startswith("base") for name in LOCAL.names(folder))


def test_a_log_that_is_dropped_while_it_is_folded_is_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as mill:
        mill.execute("DROP QUERY counted; DROP QUERY highest; DROP QUERY all_of_them")
        feed(mill, 0, 20)
        mill.checkpoint()
        for _ in range(3):
            mill.collect()  # it begins with the first that is worth it
            mill.collector.compactor.wait()
        mill.execute("DROP QUERY best; CREATE QUERY best AS SELECT k, count(*) AS v FROM s GROUP BY k")
        feed(mill, 20, 6)
        mill.collect()
        assert Counter(plain_rows(mill.queries["best"].table(), mill.queries["best"].schema.own)) == Counter(
            [(0, 2), (1, 2), (2, 2)]
        )


def test_a_reader_that_is_behind_is_told_of_the_gap_and_begins_anew(tmp_path: Path) -> None:
    with opened(tmp_path) as mill:
        query = mill.queries["best"]
        feed(mill, 0, 3)
        follower = Follower(tmp_path, ["best"])
        read = MillService(mill).results("best")
        seen = TableOfNow(query.schema)
        for committed in follower.poll():
            assert not committed.gap
            apply(seen, committed.rows)
        feed(mill, 3, 20)
        fold(mill)
        feed(mill, 23, 4)
        now = tables(mill)["best"]
        begun_anew = False
        for committed in follower.poll():
            if committed.gap:
                assert committed.epoch == query.log.base
                seen, begun_anew = TableOfNow(query.schema), True
            apply(seen, committed.rows)
        assert begun_anew and seen.rows == now
        page = MillService(mill).results("best", read.next_epoch)
        assert page.gap
        anew = TableOfNow(query.schema)
        apply(anew, page.table)
        assert anew.rows == now
        assert not MillService(mill).results("best", 0).gap
        assert not MillService(mill).results("best", page.next_epoch).gap


def apply(seen: TableOfNow, changes: pa.Table) -> None:
    for row in changes.drop_columns(["_ts"]).to_pylist():
        seen.apply(0, tuple(row.values()))


def test_who_follows_by_the_server_while_changes_are_folded_gets_gap_and_table(tmp_path: Path) -> None:
    with opened(tmp_path) as mill:
        query = mill.queries["best"]
        live = LiveResults(MillService(mill))
        seen: list[tuple[bool, int, int]] = []

        async def follow() -> None:
            live.start(asyncio.get_running_loop())
            feed(mill, 0, 3)
            following = live.follow(
                query, 0, lambda rows, epoch, version: b"%d," % rows.table.num_rows, idle_s=0.01
            )
            async for epoch in following:
                if epoch.content:
                    seen.append((epoch.gap, epoch.next_epoch, int(epoch.content.split(b",")[0])))
                if len(seen) == 1 and query.log.base is None:
                    feed(mill, 3, 20)
                    fold(mill)
                if len(seen) == 2:
                    await following.aclose()
            live.stop()

        asyncio.run(follow())
        assert [gap for gap, *_ in seen] == [False, True]
        assert query.log.base is not None and seen[1][2] == query.table().num_rows
        assert seen[1][1] == query.log.head + 1


def test_a_sink_that_was_away_while_changes_were_folded_has_the_table(tmp_path: Path) -> None:
    with opened(tmp_path) as mill:
        query = mill.queries["best"]
        kept = MemoryTable(query.schema)
        mill.sinks.add("best", kept, "here")
        feed(mill, 0, 3)
        mill.sinks.deliver_new()
        feed(mill, 3, 6)
        fold(mill)
        assert query.log.base is None or query.log.base <= mill.sinks.cursors()[0]["best"]
        mill.sinks.remove("here")
        feed(mill, 9, 20)
        fold(mill)
        feed(mill, 29, 2)
        mill.sinks.add("best", kept, "here")
        fresh = MemoryTable(query.schema)
        mill.sinks.add("best", fresh, "fresh")
        mill.sinks.deliver_new()
        for sink in (kept, fresh):
            assert Counter(plain_rows(sink.to_arrow(), query.schema.own)) == tables(mill)["best"]


@settings(max_examples=8)
@given(st.integers(0, 2**32), st.integers(1, 25))
def test_folds_runs_and_restarts_anywhere_change_no_table(seed: int, count: int) -> None:
    chooser = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        at = 0
        while at < count:
            with opened(Path(folder), least_rows=chooser.choice([1, 5, 20])) as mill:
                for _ in range(chooser.randint(1, 20)):
                    if at < count:
                        feed(mill, at, 1)
                        at += 1
                    if chooser.random() < 0.3:
                        fold(mill, with_checkpoint=chooser.random() < 0.5)
                mill.close(checkpoint=chooser.random() < 0.5)
        with opened(Path(folder)) as mill:
            finish(mill)
            found = tables(mill)
            seen = HomeReader(Path(folder))
            assert {name: log.base for name, log in seen.logs.items()} == {
                name: log.base for name, log in mill.home.logs.items()
            }
    with tempfile.TemporaryDirectory() as other, opened(Path(other), least_rows=10**9) as plain:
        feed(plain, 0, count)
        finish(plain)
        assert found == tables(plain)
