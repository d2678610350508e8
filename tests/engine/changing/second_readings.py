"""A second reading of a source, killed at any step of its way to the running reading.

created      a query comes late: its source is read a second time, in a task apart
over         both readings are at the same place: the task reads the stream itself
caught up    the task has processed all of it
joining      the query is planned with the others as well
joined       the others go on for it, and the task apart ends
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from recovery.dying import Death, Died, OneThreadPool, dying
from slicemill.api.mill import Mill
from slicemill.catalog.catalog import AGAIN, JOINING
from slicemill.runtime.tasks import BACKFILL
from slicemill.testing import Clock, open_mill

BIDS = """CREATE STREAM bid (item int, price int, ts timestamp) ORDER BY ts
    USING csv OPTIONS (path 'bids')"""
COUNTS = "SELECT item, count(*) AS n FROM bid [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY item"
FIRST, ROUNDS = 6, 7  # files when the query comes, and files that come later, one in a round


@dataclass
class Move:
    """A mill over a folder of bids, in which a query comes late, and another one comes and goes."""

    folder: Path
    clock: Clock = field(default_factory=lambda: Clock(10**15))
    seen: set[str] = field(default_factory=set)

    def open(self) -> Mill:
        mill = open_mill(
            home=self.folder / "home", folder=self.folder, pool=OneThreadPool(), clock=self.clock
        )
        mill.statements.restore()
        if not mill.catalog.relations:
            mill.execute(f"{BIDS}; CREATE QUERY first AS {COUNTS}")
        mill.open()
        return mill

    def begin(self) -> None:
        """Make the home that each run starts with a copy of."""
        (self.folder / "bids").mkdir(parents=True)
        mill = self.open()
        for number in range(FIRST):
            self.write(number)
            self.run(mill)
        mill.close()

    def write(self, number: int) -> None:
        rows = "".join(f"{n % 2},{n},2026-01-01 00:00:{n:02}\n" for n in range(4 * number, 4 * number + 4))
        path = self.folder / "bids" / f"{number:02}.csv"
        if not path.exists():
            path.write_text(rows)

    def run(self, mill: Mill) -> None:
        self.clock.now += 1_000_000
        mill.running.read_all()
        mill.dispatcher.run_all()
        mill.retention.collect()

    def play(self, mill: Mill) -> None:
        """Take the whole way; `seen` has what was seen of it."""
        if "late" not in mill.queries:
            mill.execute(f"CREATE QUERY late AS {COUNTS}")
        if "gone" not in mill.queries:
            mill.execute("CREATE QUERY gone AS SELECT item, sum(price) AS n FROM bid GROUP BY item")
        self.note(mill)
        mill.execute("DROP QUERY gone")
        for number in range(FIRST, FIRST + ROUNDS):
            self.write(number)
            mill.running.read_all()
            mill.dispatcher.run_some()
            self.note(mill)
            self.run(mill)
            self.note(mill)

    def note(self, mill: Mill) -> None:
        tasks = mill.home.tasks
        apart = [fields[BACKFILL] for fields in tasks.values() if BACKFILL in fields]
        self.seen |= {"second reading"} if any(AGAIN in name for name in mill.dispatcher.streams) else set()
        self.seen |= {key for fields in apart for key in ("done", "joins") if key in fields}
        self.seen |= {"joined"} if "late" in mill.queries and not apart else set()
        assert not any(name.endswith(JOINING) for name in mill.home.logs)

    def check(self) -> None:
        """Open what a kill has left, go on, and compare the late query with the one that was always there."""
        mill = self.open()
        self.play(mill)
        mill.drain()
        first, late = (mill.queries[name] for name in ("first", "late"))
        assert (first.error, late.error) == (None, None)
        assert [(t.ts, t.row) for t in late.timed_rows()] == [(t.ts, t.row) for t in first.timed_rows()]
        assert len(first.to_arrow()) > ROUNDS
        assert "gone" not in mill.queries
        left = [*mill.dispatcher.streams, *mill.home.streams, *mill.home.logs]
        assert not [name for name in left if AGAIN in name], "the second reading has ended"
        assert not [fields for fields in mill.home.tasks.values() if BACKFILL in fields]
        mill.close()


def killed(base: Path, folder: Path, death: Death) -> Move:
    """Play the move in a copy of a home until it dies; return what is left, in a folder of its own."""
    shutil.copytree(base, folder / "runs")
    move = Move(folder / "runs")
    mill = move.open()
    with dying(death):
        try:
            move.play(mill)
        except Died:
            assert death.dead
        else:
            assert not death.dead
    shutil.copytree(folder / "runs", folder / "left")
    mill.home.close()  # a run under way has died, too: nothing would wait for it
    return Move(folder / "left", move.clock, move.seen)


def kill_at_each_step(folder: Path, moments: Collection[str], *, journal_only: bool, every: int = 1) -> int:
    """Kill the move at steps and check what is left; return the number of kills."""
    Move(folder / "base").begin()
    counted = Death(journal_only=journal_only)
    whole = killed(folder / "base", folder / "counted", counted)
    assert whole.seen == {"second reading", "done", "joins", "joined"}
    kills = list(itertools.product(range(0, counted.steps, every), moments))
    for step, when in kills:
        scratch = folder / f"{step}-{when}"
        death = Death(step, when, journal_only=journal_only)
        left = killed(folder / "base", scratch, death)
        assert death.dead
        left.check()
        shutil.rmtree(scratch)
    return len(kills)
