"""Processor time and memory of this process and all that it started: a Spark driver, its JVM, Python workers.

    with measured() as usage:
        work()
    print(usage.cpu_s, usage.wall_s, usage.peak_bytes)

Read from /proc, so on Linux only. The kernel adds the time of a child that ended to that of the parent that
waited for it. But the daemon of Spark's Python workers does not wait for them, and nobody of ours waits for a
child whose parent died before it. So a thread looks at the tree a few times a second: a process that ended
counts with the time it had when it was last seen, or with what its parent says, if that is more. The
difference, with processes that ended before anybody saw them, is given as `ended`. What that thread takes
itself is not counted.

Memory is resident memory summed over processes. Pages that several of them share count in each, and a JVM
keeps the heap that earlier phases made it take: compare phases of one run with that in mind.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slicemill.errors import SlicemillError

SAMPLE_S = 0.1


@dataclass(slots=True)
class Usage:
    """What a phase took; filled when it ends. `cpu_s_by_kind` has the driver, `java` and the like apart."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_bytes: int = 0
    cpu_s_by_kind: dict[str, float] = field(default_factory=dict)

    def figures(self, rows: int | None = None) -> dict[str, Any]:
        """To be shown; with how many rows it took for each processor second, if rows were what it was for."""
        speed = {} if rows is None else {"rows": rows, "rows_per_cpu_s": round(rows / self.cpu_s)}
        return speed | {
            "cpu_s": round(self.cpu_s, 2),
            "wall_s": round(self.wall_s, 2),
            "peak_mb": self.peak_bytes // 1_000_000,
            "cpu_s by process": {kind: round(cpu_s, 2) for kind, cpu_s in self.cpu_s_by_kind.items()},
        }

    def __add__(self, other: Usage) -> Usage:
        kinds = {*self.cpu_s_by_kind, *other.cpu_s_by_kind}
        return Usage(
            self.cpu_s + other.cpu_s,
            self.wall_s + other.wall_s,
            max(self.peak_bytes, other.peak_bytes),
            {kind: self.cpu_s_by_kind.get(kind, 0) + other.cpu_s_by_kind.get(kind, 0) for kind in kinds},
        )


@contextmanager
def measured(sample_s: float = SAMPLE_S) -> Iterator[Usage]:
    """Measure the block: only what happens in it, whatever the processes did before."""
    if not sys.platform.startswith("linux"):
        raise SlicemillError(
            "processor time and memory of Spark's processes are read from /proc, which only Linux has; "
            "run this benchmark on Linux"
        )
    usage, tree, ended = Usage(), Tree(os.getpid()), threading.Event()
    before = tree.look()

    looking_s = 0.0

    def watch() -> None:
        nonlocal looking_s
        while not ended.wait(sample_s):
            tree.look()
        looking_s = time.thread_time()

    watcher = threading.Thread(target=watch, name="process-tree", daemon=True)
    watcher.start()
    began = time.perf_counter()
    try:
        yield usage
    finally:
        usage.wall_s = time.perf_counter() - began
        ended.set()
        watcher.join()
        after = tree.look()
        usage.cpu_s_by_kind = {kind: after[kind] - before.get(kind, 0.0) for kind in after}
        usage.cpu_s_by_kind["driver"] = max(0.0, usage.cpu_s_by_kind["driver"] - looking_s)
        usage.cpu_s = sum(usage.cpu_s_by_kind.values())
        usage.peak_bytes = tree.peak_bytes


@dataclass(frozen=True, slots=True)
class Process:
    """A line of /proc; `waited_s` is the time of the children that it has waited for, and of theirs."""

    pid: int
    parent: int
    started: int
    kind: str
    own_s: float
    waited_s: float
    resident_bytes: int


Key = tuple[int, int]  # pid and start: pids come again


@dataclass(slots=True)
class _Account:
    """What is known of a process: as it was last seen, and its children that ended."""

    process: Process
    waited_at_first_s: float
    ended_s: float = 0.0

    def total_s(self) -> float:
        waited_s = self.process.waited_s - self.waited_at_first_s
        return self.process.own_s + self.waited_at_first_s + max(waited_s, self.ended_s)


class Tree:
    """The descendants of a process, looked at again and again."""

    def __init__(self, root: int) -> None:
        self.peak_bytes = 0
        self._root = root
        self._living: dict[Key, _Account] = {}
        self._orphans_s = 0.0
        self._ended_own_s: dict[str, float] = {}

    def look(self) -> Mapping[str, float]:
        """Processor seconds so far, by kind of process."""
        found = _descendants(self._root, self._living)
        self._bury({key: account for key, account in self._living.items() if key not in found})
        for key, process in found.items():
            account = self._living.setdefault(key, _Account(process, process.waited_s))
            account.process = process
        self.peak_bytes = max(self.peak_bytes, sum(process.resident_bytes for process in found.values()))
        seconds = dict(self._ended_own_s)
        for process in found.values():
            kind = self._kind(process)
            seconds[kind] = seconds.get(kind, 0.0) + process.own_s
        total_s = self._orphans_s + sum(account.total_s() for account in self._living.values())
        return {**seconds, "ended": total_s - sum(seconds.values())}

    def _bury(self, ended: Mapping[Key, _Account]) -> None:
        by_pid = {key[0]: account for key, account in self._living.items()}
        # Children began after their parents: what a child leaves is known before its parent's turn.
        for key in sorted(ended, key=lambda key: (key[1], key[0]), reverse=True):
            process = ended[key].process
            kind = self._kind(process)
            self._ended_own_s[kind] = self._ended_own_s.get(kind, 0.0) + process.own_s
            if process.parent in by_pid:
                by_pid[process.parent].ended_s += ended[key].total_s()
            else:
                self._orphans_s += ended[key].total_s()
            del self._living[key]

    def _kind(self, process: Process) -> str:
        return "driver" if process.pid == self._root else process.kind


def _descendants(root: int, known: Iterable[Key]) -> dict[Key, Process]:
    """The processes below the root, and those that have been there."""
    processes = {process.pid: process for process in _all_processes()}
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    adopted = [p for pid, started in known if (p := processes.get(pid)) and p.started == started]
    waiting = [processes[root], *adopted]
    found: dict[Key, Process] = {}
    while waiting:
        process = waiting.pop()
        if (process.pid, process.started) not in found:
            found[process.pid, process.started] = process
            waiting += children.get(process.pid, [])
    return found


def _all_processes() -> Iterator[Process]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                text = Path(entry.path, "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
            yield _process(int(entry.name), text)


def _process(pid: int, stat: str) -> Process:
    # The name stands in parentheses and may hold any character; numbers follow the last one (proc(5)).
    kind, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    user, system, waited_user, waited_system = (
        int(value) / os.sysconf("SC_CLK_TCK") for value in fields[11:15]
    )
    return Process(
        pid,
        int(fields[1]),
        int(fields[19]),
        kind,
        user + system,
        waited_user + waited_system,
        int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
    )
