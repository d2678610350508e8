"""A mill on a real cluster: an executor that is killed changes nothing in the results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from runtime.recovery import chain, child, scenario
from runtime.standalone import Cluster, environment, standalone

_POLL_S = 0.25
_POLLS = 800


def test_an_executor_that_is_killed_changes_nothing(tmp_path: Path) -> None:
    feed = scenario.Feed(tmp_path, files=4)
    truth = feed.truth(tmp_path / "all")
    feed.release(feed.rest)
    home = tmp_path / "home"
    with standalone(tmp_path) as cluster:
        work = child.Work(cluster.master, str(home), str(tmp_path), feed.lines, buckets=5, drain=True)
        with subprocess.Popen(
            [sys.executable, "-m", child.__name__, work.encoded()],
            env=chain.environment(environment()),
            start_new_session=True,
        ) as driver:
            try:
                _until(lambda: bool(scenario.found(home)["level"]), driver)
                killed = _kill_one_executor(cluster)
                _until(lambda: len(set(cluster.executors()) - {killed}) == 2, driver)
                assert driver.wait(_POLL_S * _POLLS) == 0
            finally:
                if driver.poll() is None:
                    os.killpg(driver.pid, signal.SIGKILL)
    scenario.compare(scenario.found(home), truth)


def _kill_one_executor(cluster: Cluster) -> int:
    executors = cluster.executors()
    assert len(executors) == 2, executors
    os.kill(executors[0], signal.SIGKILL)
    return executors[0]


def _until(condition: Callable[[], bool], driver: subprocess.Popen[bytes]) -> None:
    """Wait for a condition, as long as the driver lives."""
    for _ in range(_POLLS):
        if condition():
            return
        try:
            status = driver.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"the driver has ended with {status}")
    raise AssertionError("this takes too long")
