"""CPU seconds of tests: measure them, and divide modules between the two processes of `make test`.

`--cpu-seconds FILE` appends a line of JSON for each test: its id, the CPU seconds of this process and of all
that descend from it, and the seconds by the clock. `python tests/support/cpu_seconds.py FILE ...` writes the
sums by module to `tests/cpu_seconds.json`.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

TESTS = Path(__file__).parents[1]
KEPT = TESTS / "cpu_seconds.json"
# Modules below this are not kept in the file; a new module counts as much until the file is renewed.
_SMALL_S = 0.5
# A test above this has the mark `slow_cpu`.
SLOW_S = 3.0
# `make test` checks types in the process that has no Spark session.
MYPY_S = 60.0
# The process with the Spark session starts it, and waits for Spark's jobs.
SESSION_S = 150.0


# Modules of these folders share a browser and servers, so that they run in one process.
_TOGETHER = frozenset({"console"})


def first_process(modules: Collection[str], with_session: Collection[str]) -> frozenset[str]:
    """Return the modules that run beside the Spark session; the other process takes as long.

    Modules that use the session are among them. Each of the others, the longest first, goes to the process
    that has less to do.
    """
    seconds = defaultdict(lambda: _SMALL_S, json.loads(KEPT.read_text()))
    first = set(with_session)
    first_s, second_s = SESSION_S + sum(seconds[module] for module in first), MYPY_S
    tasks: dict[str, list[str]] = defaultdict(list)
    for module in sorted(set(modules) - first):
        folder = module.partition("/")[0]
        tasks[folder if folder in _TOGETHER else module].append(module)
    lengths = {task: sum(seconds[module] for module in tasks[task]) for task in tasks}
    for task in sorted(tasks, key=lambda task: (-lengths[task], task)):
        if first_s < second_s:
            first.update(tasks[task])
            first_s += lengths[task]
        else:
            second_s += lengths[task]
    return frozenset(first)


class Measurement:
    """A plugin that measures each test; the summary names tests above the limit that have no mark."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._unmarked: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before, begun = processes(), time.monotonic()
        result = yield
        cpu_s, wall_s = cpu_s_between(before, processes()), time.monotonic() - begun
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([item.nodeid, round(cpu_s, 2), round(wall_s, 2)]) + "\n")
        if cpu_s > SLOW_S and item.get_closest_marker("slow_cpu") is None:
            self._unmarked.append(f"{cpu_s:7.1f} s  {item.nodeid}")
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._unmarked:
            terminalreporter.section(f"more than {SLOW_S:.0f} CPU seconds without the mark slow_cpu")
            for line in self._unmarked:
                terminalreporter.write_line(line)


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """CPU seconds of a process, and of its children that have ended."""

    parent: int
    own_s: float = 0.0
    ended_s: float = 0.0


def processes() -> dict[int, ProcessTimes]:
    """Return the times of this process and of its descendants, by process id."""
    me = psutil.Process()
    found = {}
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended since it was listed
            times = process.cpu_times()
            own_s, ended_s = times.user + times.system, times.children_user + times.children_system
            found[process.pid] = ProcessTimes(process.ppid(), own_s, ended_s)
    return found


def cpu_s_between(before: Mapping[int, ProcessTimes], after: Mapping[int, ProcessTimes]) -> float:
    """Return the CPU seconds that processes have used between two moments.

    A parent that waits for a child that has ended gets all seconds of the child, with those before the first
    moment. A parent that does not wait, as Spark's daemon, gets none of them.
    """
    known_s: dict[int, float] = defaultdict(float)
    for pid in before.keys() - after.keys():
        known_s[before[pid].parent] += before[pid].own_s + before[pid].ended_s
    total_s = 0.0
    for pid, times in after.items():
        earlier = before.get(pid, ProcessTimes(times.parent))
        total_s += times.own_s - earlier.own_s
        total_s += max(0.0, times.ended_s - earlier.ended_s - known_s[pid])
    return total_s


def by_module(paths: Iterable[Path]) -> dict[str, float]:
    """Return the CPU seconds of each module with more than a little, in order of name."""
    found: dict[str, float] = defaultdict(float)
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            test, cpu_s, _ = json.loads(line)
            found[test.partition("::")[0].removeprefix("tests/")] += cpu_s
    return {module: round(found[module], 1) for module in sorted(found) if found[module] > _SMALL_S}


if __name__ == "__main__":
    KEPT.write_text(json.dumps(by_module(map(Path, sys.argv[1:])), indent=1) + "\n", encoding="utf-8")
