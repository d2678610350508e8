"""Where a read is a Spark job, a source that has nothing new is looked at, not read."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from connectors.sender import Sender, eventually
from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.runtime.messages import Message, ReadStream
from slicemill.runtime.workers.events import Event, Notice
from slicemill.runtime.workers.inline import InlinePool
from slicemill.runtime.workers.sharing import HANDLER
from slicemill.testing import Clock, open_mill
from support.engine import turn

SECOND = 1_000_000
BEGIN = 1_800_000_000 * SECOND


class JobsInline(InlinePool):
    """Like ordinary jobs: nothing stays in a worker. Counts the reads that it is sent."""

    resident = False

    def __init__(self) -> None:
        super().__init__(1, HANDLER)
        self.reads = 0

    def send(self, worker: int, message: object) -> None:
        if isinstance(message, Message):
            self.reads += sum(isinstance(item, ReadStream) for item in message.items)
        super().send(worker, message)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """A notice would wait in a process until its next job: none comes here."""
        return [event for event in super().wait(timeout_s) if not isinstance(event, Notice)]


def passes(mill: Mill, clock: Clock, seconds: float) -> None:
    for _ in range(int(seconds / 0.05)):
        clock.now += SECOND // 20
        mill.dispatcher._pace._next_s = 0.0  # reads need not gather rows
        turn(mill)


def opened(folder: Path, clock: Clock, pool: JobsInline, order: str) -> Mill:
    (folder / "in").mkdir()
    (folder / "in" / "a.csv").write_text("1\n")
    mill = open_mill(home=folder / "home", pool=pool, clock=clock, folder=folder)
    mill.execute(
        f"CREATE STREAM s (k int) {order} SOURCE 'in/*.csv';"
        "CREATE QUERY q AS SELECT k FROM s;"
        "CREATE QUERY n AS SELECT count(*) AS n FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS]"
    )
    mill.open()
    mill.running.start_reading()
    return mill


def test_a_folder_without_new_files_is_not_read(tmp_path: Path) -> None:
    clock, pool = Clock(BEGIN), JobsInline()
    with opened(tmp_path, clock, pool, "") as mill:
        passes(mill, clock, 2)
        read = pool.reads
        passes(mill, clock, 5)
        assert pool.reads <= read + 1
        (tmp_path / "in" / "b.csv").write_text("2\n")
        passes(mill, clock, 1)
        assert [timed.row for timed in mill.queries["q"].timed_rows()] == [(1,), (2,)]


def test_time_passes_in_a_stream_that_is_only_looked_at(tmp_path: Path) -> None:
    clock, pool = Clock(BEGIN), JobsInline()
    with opened(tmp_path, clock, pool, "ORDER BY current_time") as mill:
        passes(mill, clock, 10)
        assert [timed.row for timed in mill.queries["n"].timed_rows()][:1] == [(1,)]
        assert pool.reads <= 6


def test_a_new_stream_of_a_socket_is_refused(tmp_path: Path) -> None:
    """A job connects anew, and lines between two jobs would be lost."""
    refused = pytest.raises(SlicemillError, match=r"--execution jobs .* run with --execution workers")
    (tmp_path / "in").mkdir()
    with open_mill(home=tmp_path / "home", pool=JobsInline(), clock=Clock(BEGIN), folder=tmp_path) as mill:
        mill.open()
        with refused:
            mill.execute(
                "CREATE STREAM s (k int) SOURCE 'tcp://127.0.0.1:9'; CREATE QUERY q AS SELECT k FROM s"
            )
        assert not mill.queries
        mill.execute("CREATE STREAM s (k int) SOURCE 'in/*.csv'; CREATE QUERY q AS SELECT k FROM s")
        with refused:
            mill.execute("CREATE OR REPLACE STREAM s (k int) SOURCE 'tcp://127.0.0.1:9'")


def test_lines_of_a_socket_are_read_although_no_notice_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream that was declared for workers goes on, with a warning."""
    clock, pool = Clock(BEGIN), JobsInline()
    with closing(Sender()) as sender:
        with open_mill(home=tmp_path, pool=InlinePool(1, HANDLER), clock=clock) as mill:
            mill.execute(
                f"CREATE STREAM s (k int) SOURCE 'tcp://127.0.0.1:{sender.port}';"
                "CREATE QUERY q AS SELECT k FROM s"
            )
            mill.open()
        with open_mill(home=tmp_path, pool=pool, clock=clock) as mill:
            mill.statements.restore()
            mill.open()
            assert "lines on their way between two reads are lost" in caplog.text
            read_lines(mill, clock, pool, sender)


def read_lines(mill: Mill, clock: Clock, pool: JobsInline, sender: Sender) -> None:
    mill.running.start_reading()
    for count in (1, 2):
        sender.hang_up()  # a job connects anew
        sender.send(b"%d\n" % count)

        def came(count: int = count) -> bool:
            passes(mill, clock, 0.2)
            return len(mill.queries["q"].timed_rows()) == count

        eventually(came)

    def idle() -> bool:
        read = pool.reads
        passes(mill, clock, 10)
        return pool.reads == read

    eventually(idle)
    read = pool.reads
    passes(mill, clock, 30)
    assert pool.reads >= read + 1  # so that the process with the connection stays
