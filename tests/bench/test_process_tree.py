"""Measurement of the resources of a process and its children."""

from __future__ import annotations

import subprocess
import sys
import time

from slicemill_lab.bench.measuring.process_tree import Usage, measured

# The kernel counts time in hundredths of a second, and truncates it for each process.
BURNT_S = 0.4 - 2 * 0.01
BURN = "import time\nwhile time.process_time() < {}: pass"


def test_the_time_of_an_ended_child_counts() -> None:
    with measured() as usage:
        subprocess.run([sys.executable, "-c", BURN.format(0.4)], check=True)
    assert BURNT_S <= usage.cpu_s < 1.5
    assert usage.wall_s >= 0.4


def test_the_time_of_an_ended_grandchild_counts() -> None:
    child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN.format(0.4)!r}])"
    with measured() as usage:
        subprocess.run([sys.executable, "-c", child], check=True)
    assert usage.cpu_s >= BURNT_S


def test_an_orphaned_process_counts_until_its_last_sample() -> None:
    orphan = f"{BURN.format(0.1)}\nprint(flush=True)\n{BURN.format(0.4)}"
    child = (
        "import subprocess, sys\n"
        f"orphan = subprocess.Popen([sys.executable, '-c', {orphan!r}], stdout=subprocess.PIPE)\n"
        "orphan.stdout.readline()"
    )
    with measured(sample_s=0.01) as usage:
        # The grandchild inherits the pipe of stderr, so the call ends when both processes have ended.
        subprocess.run([sys.executable, "-c", child], check=True, capture_output=True)
    assert usage.cpu_s >= 0.3


def test_a_child_without_a_waiting_parent_counts_until_its_last_sample() -> None:
    child = (
        "import signal, subprocess, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"burner = subprocess.Popen([sys.executable, '-c', {BURN.format(0.4)!r}], stdout=subprocess.PIPE)\n"
        "burner.stdout.read()"
    )
    with measured(sample_s=0.01) as usage:
        subprocess.run([sys.executable, "-c", child], check=True)
    assert 0.3 <= usage.cpu_s < 1.5


def test_the_time_of_a_kind_of_process_is_never_negative() -> None:
    code = f"{BURN.format(0.4)}\nprint(flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    with measured() as usage:
        child.communicate(b"\n")
    assert all(cpu_s > -0.01 for cpu_s in usage.cpu_s_by_kind.values())
    assert usage.cpu_s < 0.3


def test_work_before_the_measured_phase_does_not_count() -> None:
    subprocess.run([sys.executable, "-c", BURN.format(0.4)], check=True)
    with measured() as usage:
        pass
    assert usage.cpu_s < 0.2


def test_a_child_that_started_earlier_counts_from_the_start_of_the_phase() -> None:
    code = f"{BURN.format(0.2)}\nprint(flush=True)\n{BURN.format(0.6)}"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        child.stdout.readline()
        with measured() as usage:
            child.wait()
    finally:
        child.kill()
        child.stdout.close()
    assert 0 < usage.cpu_s < 0.7


def test_another_process_is_measured_with_its_children_and_without_this_process() -> None:
    code = (
        "import subprocess, sys\n"
        f"input()\nsubprocess.run([sys.executable, '-c', {BURN.format(0.4)!r}])\nprint(flush=True)\ninput()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    with measured() as ours, measured(child.pid) as usage:
        child.stdin.write(b"\n")
        child.stdin.flush()
        exec(BURN.format(time.process_time() + 0.4))
        child.stdout.readline()
    child.communicate(b"\n")
    assert BURNT_S <= usage.cpu_s < ours.cpu_s - 0.3


def test_the_peak_of_memory_is_that_of_all_processes_together() -> None:
    hold = f"held = bytearray(80_000_000)\n{BURN.format(0.3)}"
    with measured(sample_s=0.02) as usage:
        subprocess.run([sys.executable, "-c", hold], check=True)
    with measured() as alone:
        pass
    assert usage.peak_bytes - alone.peak_bytes > 70_000_000


def test_usages_add_up() -> None:
    total = Usage(1, 2, 30, {"driver": 1}) + Usage(3, 4, 20, {"java": 3})
    assert total == Usage(4, 6, 30, {"driver": 1, "java": 3})
