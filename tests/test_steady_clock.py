"""The clock of a process continues if the machine's clock is set back, and follows it forward."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.storage.changes import Change
from slicemill.storage.home import Home
from slicemill.time import SteadyClock, wall_clock_us
from support.engine import inline_pool, turn

SECOND = 1_000_000_000
HOUR = 3_600 * SECOND
STREAM = "CREATE STREAM s (v int) ORDER BY current_time USING json OPTIONS (path 'in')"


class Machine:
    """The two clocks of a machine, in nanoseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = 1_700_000_000 * SECOND, 5 * SECOND
        monkeypatch.setattr(time, "time_ns", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.steady)

    def wait(self, ns: int) -> None:
        self.wall += ns
        self.steady += ns


def test_the_clock_continues_after_a_step_back_and_follows_a_step_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    clock = SteadyClock()
    begun = clock()
    assert begun == machine.wall // 1000
    machine.wall -= HOUR
    assert clock() == begun
    machine.wait(SECOND)
    assert clock() == begun + 1_000_000
    machine.wall += 3 * HOUR
    assert clock() == machine.wall // 1000
    assert clock.not_before(clock() + 7) == 7 and clock() == machine.wall // 1000 + 7
    assert clock.not_before(begun) == 0


def test_a_source_is_read_after_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    with Mill(home=tmp_path / "home", pool=inline_pool(1), folder=tmp_path, subtasks=1) as mill:
        mill.execute(f"{STREAM}; CREATE QUERY q AS SELECT v FROM s")
        mill.open()
        mill.read_all()
        real, set_back = time.time_ns, 0
        monkeypatch.setattr(time, "time_ns", lambda: real() - set_back)
        set_back = HOUR
        (tmp_path / "in" / "1.json").write_text('{"v": 1}\n')
        moment = mill.streams["s"].next_read_us
        assert moment is not None
        wall_clock_us.not_before(moment)  # ends the pause of some milliseconds between two polls
        turn(mill)
        assert [row.row for row in mill.queries["q"].rows()] == [(1,)]


def test_the_clock_continues_from_the_last_commit_of_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ahead = wall_clock_us() + HOUR // 1000
    home = Home(tmp_path, clock=lambda: ahead)
    home.open()
    home.commit(Change(streams={"s": {"offsets": {}}}))
    home.close()
    clock = SteadyClock()
    monkeypatch.setattr("slicemill.api.mill.wall_clock_us", clock)
    with caplog.at_level(logging.WARNING, "slicemill"), Mill(home=tmp_path, pool=inline_pool(1)):
        assert clock() >= ahead
    assert re.search(r"the clock of this machine is 3\d\d\d s behind the last commit", caplog.text)
