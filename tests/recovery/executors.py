"""Killing executors under a driver: what comes out is what comes out without."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from recovery import on_cluster, scenario
from recovery.child import Work
from recovery.drivers import environment
from slicemill_lab.spark_clusters import EXECUTORS, Cluster
from support.corpus import read_cases

_POLL_S = 0.1
# Of each executor. One slot of all stays free for Spark's own tasks: on each executor is a worker at least.
CORES = 2
_FILES = 6


def cases(of_each_folder: int) -> list[str]:
    """The first cases of every folder of the corpus, except those that show mistakes."""
    folders: dict[str, list[str]] = {}
    for case in read_cases():
        if "errors" not in case.needs:
            folders.setdefault(case.name.partition("/")[0], []).append(case.name)
    return [name for names in folders.values() for name in names[:of_each_folder]]


def check_that_killed_executors_change_nothing(
    cluster: Cluster, folder: Path, database: str, corpus: list[str]
) -> None:
    """One is killed while a mill reads and runs; if cases are run too, one in the middle of them."""
    feed = scenario.Feed(folder, _FILES)
    truth = feed.truth(folder / "all")
    feed.release(feed.rest)
    work = Work(str(folder / "home"), str(folder), database, drain=True, subtasks=5)
    with subprocess.Popen(
        [sys.executable, "-m", on_cluster.__name__, work.encoded(), cluster.master, *corpus],
        env=environment(cluster.environment),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as driver:
        try:
            _until(lambda: bool(scenario.found(folder / "home")["level"]), driver)
            # Most files are still to come.
            _kill_one(cluster, driver)
            assert _line(driver) == on_cluster.MILL_DONE
            done = [_line(driver) for _ in corpus[: len(corpus) // 2]]
            if corpus:
                _kill_one(cluster, driver)
            done += [_line(driver) for _ in corpus[len(corpus) // 2 :]]
            assert (driver.wait(), done) == (0, corpus)
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
    found = scenario.found(folder / "home")
    assert not found.pop("traded")
    scenario.compare(found, truth)
    scenario.compare(scenario.delivered(folder, database), truth)


def _kill_one(cluster: Cluster, driver: subprocess.Popen[str]) -> None:
    """One of two: the first that are started, or those that are left with the one in a killed one's place."""
    _until(lambda: len(cluster.executors(driver.pid)) == EXECUTORS, driver)
    os.kill(cluster.executors(driver.pid)[0], signal.SIGKILL)


def _line(driver: subprocess.Popen[str]) -> str:
    assert driver.stdout is not None
    return driver.stdout.readline().rstrip("\n")


def _until(condition: Callable[[], bool], driver: subprocess.Popen[str]) -> None:
    """Wait for a condition, as long as the driver lives."""
    while not condition():
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the driver has ended with {driver.wait(_POLL_S)}")
