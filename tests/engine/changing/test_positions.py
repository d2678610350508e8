"""Where queries start: with the first row of a file source, whenever they are created."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.changing.come_and_go import Step
from engine.changing.positions import come_late, play, sequences
from engine.changing.second_readings import kill_at_each_step
from recovery.dying import AFTER
from slicemill.api.mill import Mill
from slicemill.catalog.catalog import AGAIN
from slicemill.errors import SlicemillError
from slicemill.sql.errors import EslError
from slicemill.testing import Clock, inline_pool, open_mill

# One of each way to keep state, to share it, and to read others; `slow_positions` has all kinds.
FEW = (
    *("some", "table", "view", "from_derived", "table_totals", "over_rows", "over_range", "grouped", "panes"),
    *("sessions", "changing_groups", "join", "join_three", "join_left", "runs"),
)


@pytest.mark.parametrize("kind", FEW)
def test_a_query_that_comes_late_gives_what_one_gives_from_the_start(kind: str) -> None:
    come_late(kind)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=sequences(), seed=st.integers(0, 3), subtasks=st.sampled_from([1, 3]))
def test_queries_created_at_any_moment_give_what_those_give_from_the_start(
    steps: list[Step], seed: int, subtasks: int
) -> None:
    play(steps, seed, subtasks)


BIDS = """CREATE STREAM bid (item int, price int, ts timestamp) ORDER BY ts{}
    USING csv OPTIONS (path 'bids')"""
COUNTS = "SELECT item, count(*) AS n FROM bid [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY item"


class Bids:
    """A mill over a folder of bids, one for each second."""

    def __init__(self, folder: Path, begin: str = "") -> None:
        self.folder, self.clock = folder, Clock(10**15)
        (folder / "bids").mkdir()
        self.begin = begin
        self.mill = self.opened()

    def opened(self) -> Mill:
        mill = open_mill(home=self.folder / "home", folder=self.folder, pool=inline_pool(), clock=self.clock)
        if mill.statements.restore() == [] and not mill.catalog.relations:
            mill.execute(BIDS.format(self.begin))
        mill.open()
        return mill

    def write(self, first: int, last: int) -> None:
        rows = "".join(f"{n % 2},{n},2026-01-01 00:00:{n:02}\n" for n in range(first, last + 1))
        (self.folder / "bids" / f"{first:02}.csv").write_text(rows)

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.now += 1_000_000
            self.mill.running.read_all()
            self.mill.dispatcher.run_all()
            self.mill.retention.collect()

    def prices(self, query: str) -> list[object]:
        return [timed.row[1] for timed in self.mill.queries[query].timed_rows()]


@pytest.fixture
def bids(tmp_path: Path) -> Iterator[Bids]:
    made = Bids(tmp_path)
    yield made
    made.mill.close()


def test_from_now_and_from_beginning_override_the_stream(bids: Bids) -> None:
    bids.write(1, 3)
    bids.mill.execute("CREATE QUERY first AS SELECT item, price FROM bid")
    bids.run(2)
    bids.mill.execute("CREATE QUERY later FROM NOW AS SELECT item, price FROM bid")
    bids.mill.execute("CREATE QUERY again FROM BEGINNING AS SELECT item, price FROM bid")
    timed = "CREATE QUERY timed FROM TIMESTAMP '2026-01-01 00:00:03' AS SELECT item, price FROM bid"
    bids.mill.execute(timed)
    bids.write(4, 5)
    bids.run(3)
    assert bids.prices("first") == bids.prices("again") == [1, 2, 3, 4, 5]
    assert bids.prices("later") == [4, 5]
    assert bids.prices("timed") == [3, 4, 5]


@pytest.mark.parametrize("clause", [" BEGIN = 'latest'", " BEGIN LATEST"])
def test_latest_passes_by_what_is_there_when_the_stream_is_read_first(tmp_path: Path, clause: str) -> None:
    bids = Bids(tmp_path, clause)
    bids.write(1, 3)
    bids.mill.execute("CREATE QUERY first AS SELECT item, price FROM bid")
    bids.run()
    bids.write(4, 5)
    bids.run()
    bids.mill.close(checkpoint=False)
    bids.mill = bids.opened()
    bids.mill.execute("CREATE QUERY second AS SELECT item, price FROM bid")
    bids.write(6, 7)
    bids.run(2)
    assert bids.prices("first") == [4, 5, 6, 7]
    assert bids.prices("second") == [6, 7]
    bids.mill.close()


def test_a_time_leaves_out_older_rows_for_every_query(tmp_path: Path) -> None:
    bids = Bids(tmp_path, " BEGIN TIMESTAMP '2026-01-01 00:00:03'")
    bids.write(1, 5)
    bids.mill.execute("CREATE QUERY first AS SELECT item, price FROM bid")
    bids.run()
    bids.mill.execute("CREATE QUERY second AS SELECT item, price FROM bid")
    bids.run(2)
    assert bids.prices("first") == bids.prices("second") == [3, 4, 5]
    bids.mill.close()


def test_a_second_reading_ends_with_its_query(bids: Bids) -> None:
    bids.write(1, 3)
    bids.mill.execute(f"CREATE QUERY first AS {COUNTS}")
    bids.run(2)
    logs = set(bids.mill.home.logs)
    bids.mill.execute("CREATE STREAM dear AS SELECT item, price FROM bid WHERE price > 1")
    bids.mill.execute("CREATE QUERY late AS SELECT item, sum(price) AS n FROM dear GROUP BY item")
    assert [name for name in bids.mill.dispatcher.streams if AGAIN in name]
    assert list(bids.mill.running.streams) == ["bid"], "people see the stream once"
    bids.mill.execute("DROP QUERY late; DROP STREAM dear")
    assert list(bids.mill.dispatcher.streams) == ["bid"]
    assert set(bids.mill.home.logs) == logs
    assert [name for name in bids.mill.home.streams if AGAIN in name] == []


def test_a_kill_after_a_record_of_a_second_reading_changes_no_results(tmp_path: Path) -> None:
    """`slow_positions` has kills at all file operations."""
    assert kill_at_each_step(tmp_path, (AFTER,), journal_only=True, every=5) > 5


def test_many_files_and_files_that_are_gone_do_not_keep_a_second_reading_alive(bids: Bids) -> None:
    bids.mill.execute(f"CREATE QUERY first AS {COUNTS}")
    for number in range(100):  # more names than an offset holds
        (bids.folder / "bids" / f"a{number:03}.csv").write_text(f"1,{number},2026-01-01 00:00:01\n")
        if number in (40, 80):
            bids.run()
    bids.run(2)
    (bids.folder / "bids" / "a000.csv").unlink()
    bids.mill.execute(f"CREATE QUERY late AS {COUNTS}")
    bids.run(3)
    assert list(bids.mill.dispatcher.streams) == ["bid"]


def test_rows_of_windows_that_began_before_their_query_are_held_back(bids: Bids) -> None:
    bids.write(1, 5)
    bids.mill.execute(f"CREATE QUERY whole AS {COUNTS}")
    bids.run()
    bids.mill.execute(f"CREATE QUERY held FROM NOW AS {COUNTS}")
    bids.mill.execute(f"CREATE QUERY shown FROM NOW WITH (incomplete = 'show') AS {COUNTS}")
    bids.write(6, 20)
    bids.run()
    complete = bids.mill.queries["held"].complete_from()
    rows = {
        name: {(timed.ts, timed.row) for timed in bids.mill.queries[name].timed_rows()}
        for name in ("whole", "held", "shown")
    }
    assert complete is not None
    assert rows["held"] == {row for row in rows["whole"] if row[0] > complete}
    assert rows["held"] < rows["shown"]
    assert rows["shown"] - rows["whole"], "these are of incomplete windows"


@pytest.mark.parametrize(
    ("clause", "message", "hint"),
    [
        (" BEGIN 'yesterday'", "'yesterday' is not a timestamp", "BEGIN EARLIEST, BEGIN LATEST"),
        (" BEGIN LATEST BEGIN EARLIEST", "BEGIN is given twice", "keep one"),
    ],
)
def test_a_mistake_in_begin_says_what_to_do(bids: Bids, clause: str, message: str, hint: str) -> None:
    with pytest.raises(EslError) as raised:
        bids.mill.execute(BIDS.replace("STREAM bid", "STREAM other").format(clause))
    assert message in str(raised.value)
    assert hint in str(raised.value)


def test_begin_may_change_and_holds_for_later_queries(bids: Bids) -> None:
    bids.write(1, 3)
    bids.mill.execute("CREATE QUERY first AS SELECT item, price FROM bid")
    bids.run()
    bids.mill.execute(BIDS.format(" BEGIN LATEST").replace("CREATE", "CREATE OR REPLACE"))
    bids.mill.execute("CREATE QUERY later AS SELECT item, price FROM bid")
    bids.mill.close()
    bids.mill = bids.opened()
    bids.write(4, 4)
    bids.run()
    bids.mill.execute("CREATE QUERY last AS SELECT item, price FROM bid")
    bids.run()
    assert bids.prices("first") == [1, 2, 3, 4]
    assert bids.prices("later") == [4]
    assert bids.prices("last") == []


def test_a_replacement_reads_the_source_again_and_gives_what_comes_after_the_last_result(bids: Bids) -> None:
    """Its windows are whole, and groups without a window count all rows."""
    more = COUNTS.replace("count(*) AS n", "count(*) AS n, avg(price) AS mean")
    totals = "SELECT item, count(*) AS n, sum(price) AS worth FROM bid GROUP BY item"
    bids.write(1, 7)
    bids.mill.execute(f"CREATE QUERY replaced AS {COUNTS}; CREATE QUERY whole AS {more}")
    bids.mill.execute("CREATE QUERY totals AS SELECT item, count(*) AS n FROM bid GROUP BY item")
    bids.run(2)
    last = max(timed.ts for timed in bids.mill.queries["replaced"].timed_rows())
    bids.mill.execute(f"CREATE OR REPLACE QUERY replaced AS {more}")
    bids.mill.execute(f"CREATE OR REPLACE QUERY totals AS {totals}")
    bids.write(8, 12)
    bids.run(2)
    bids.write(13, 30)
    bids.run(3)
    replaced, whole = (
        [(timed.ts, timed.row) for timed in bids.mill.queries[name].timed_rows()]
        for name in ("replaced", "whole")
    )
    assert replaced == [row for row in whole if row[0] > last]
    rows = bids.mill.queries["totals"].table().select(["item", "n", "worth"]).to_pylist()
    assert sorted(rows, key=str) == [
        {"item": 0, "n": 15, "worth": sum(range(2, 31, 2))},
        {"item": 1, "n": 15, "worth": sum(range(1, 31, 2))},
    ]
    assert list(bids.mill.dispatcher.streams) == ["bid"]


def test_what_is_read_again_is_not_changed_meanwhile(bids: Bids) -> None:
    bids.write(1, 3)
    bids.mill.execute(f"CREATE QUERY first AS {COUNTS}")
    bids.run()
    bids.mill.execute(f"CREATE QUERY late AS {COUNTS}")
    with pytest.raises(SlicemillError, match="bid is being read from the beginning for late; change it when"):
        bids.mill.execute("ALTER STREAM bid ADD COLUMN buyer int")
    with pytest.raises(SlicemillError, match="late is still reading bid from the beginning; replace it when"):
        bids.mill.execute(f"CREATE OR REPLACE QUERY late AS {COUNTS.replace('count(*)', 'sum(price)')}")
    bids.run(3)
    bids.mill.execute("ALTER STREAM bid ADD COLUMN buyer int")


def test_a_stream_from_another_source_starts_its_queries_with_what_arrives(bids: Bids) -> None:
    """A second reading would not have the rows of the first source."""
    bids.write(1, 3)
    bids.mill.execute("CREATE QUERY first AS SELECT item, price FROM bid")
    bids.run()
    (bids.folder / "others").mkdir()
    other = BIDS.format("").replace("'bids'", "'others'").replace("CREATE", "CREATE OR REPLACE")
    bids.mill.execute(other)
    bids.mill.execute("CREATE QUERY late AS SELECT item, price FROM bid")
    (bids.folder / "others" / "1.csv").write_text("0,4,2026-01-01 00:00:04\n")
    bids.run(2)
    assert bids.prices("first") == [1, 2, 3, 4]
    assert bids.prices("late") == [4]
