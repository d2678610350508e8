"""Drivers that are interrupted or killed: no process is left and nothing is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from engine.workers.pools import PATIENCE_S

SCRIPT = Path(__file__).parent / "driver_script.py"
TESTS = SCRIPT.parents[2]


@contextmanager
def driver() -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process], Path]]:
    """A driver with two workers that are there, all processes below it, and the socket they connect to."""
    path = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
    with subprocess.Popen(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        processes: list[psutil.Process] = []
        try:
            assert process.stdout is not None and process.stderr is not None
            said = process.stdout.readline().split()
            assert said[:1] == ["ready"], process.stderr.read()
            processes = psutil.Process(process.pid).children(recursive=True)
            assert {int(pid) for pid in said[2:]} <= {child.pid for child in processes}
            assert Path(said[1]).is_socket()
            yield process, processes, Path(said[1])
        finally:
            for each in (process, *processes):
                if each.pid and psutil.pid_exists(each.pid):
                    each.kill()


def all_end(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, PATIENCE_S)[1]


def test_a_driver_that_is_killed_leaves_no_process_no_file_and_no_trace() -> None:
    with driver() as (process, processes, socket):
        process.kill()
        assert all_end(processes)
        assert process.communicate() == ("", "")
    assert not socket.parent.exists()


def test_ctrl_c_reaches_the_driver_while_its_workers_go_on_answering_and_a_stop_of_spark_the_pool() -> None:
    with driver() as (process, processes, socket):
        # To the whole group, as a terminal does it.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert all_end(processes)
    assert err == ""
    assert out.splitlines() == [
        "interrupted [0, 1] True",
        "handler is back True",
        "told that Spark has stopped",
    ]
    assert process.returncode == 0
    assert not socket.parent.exists()
