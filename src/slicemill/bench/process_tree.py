"""Processor time and memory of this process and all that it started: a Spark driver, its JVM, Python workers.

    with measured() as usage:
        work()
    print(usage.cpu_s, usage.wall_s, usage.peak_bytes)

Read from /proc, so on Linux only. The kernel adds the time of a child that ended to that of the parent that
waited for it, so nothing that happened between two readings is missed. A thread looks at the tree a few times
a second, for the peak of memory and for processes whose parent died before them: these leave the tree, but
stay in the measurement, with the time they had when they were last seen.

Memory is resident memory summed over processes. Pages that several of them share count in each, and a JVM
keeps the heap that earlier phases made it take: compare phases of one run with that in mind.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from slicemill.errors import SlicemillError

SAMPLE_S = 0.1


@dataclass(slots=True)
class Usage:
    """What a phase took; filled when it ends. `cpu_s_by_kind` has the driver, `java` and the like apart."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_bytes: int = 0
    cpu_s_by_kind: dict[str, float] = field(default_factory=dict)

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

    def watch() -> None:
        while not ended.wait(sample_s):
            tree.look()

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
        usage.cpu_s = sum(usage.cpu_s_by_kind.values())
        usage.peak_bytes = tree.peak_bytes


@dataclass(frozen=True, slots=True)
class Process:
    """A line of /proc: `cpu_s` with that of the children it has waited for."""

    pid: int
    parent: int
    started: int
    kind: str
    cpu_s: float
    resident_bytes: int


class Tree:
    """The descendants of a process, looked at again and again."""

    def __init__(self, root: int) -> None:
        self.peak_bytes = 0
        self._root = root
        self._known: dict[tuple[int, int], Process] = {}
        self._lost_s: dict[str, float] = {}

    def look(self) -> Mapping[str, float]:
        """Processor seconds so far, by kind of process."""
        known = {process.pid for process in self._known.values()}
        found = _descendants(self._root, self._known)
        for key, process in self._known.items():
            # Its parent, if it was one of ours, has counted it since.
            if key not in found and process.parent not in known:
                self._lost_s[process.kind] = self._lost_s.get(process.kind, 0.0) + process.cpu_s
        self._known = found
        self.peak_bytes = max(self.peak_bytes, sum(process.resident_bytes for process in found.values()))
        total = dict(self._lost_s)
        for process in found.values():
            kind = "driver" if process.pid == self._root else process.kind
            total[kind] = total.get(kind, 0.0) + process.cpu_s
        return total


def _descendants(root: int, known: Mapping[tuple[int, int], Process]) -> dict[tuple[int, int], Process]:
    processes = {process.pid: process for process in _all_processes()}
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    adopted = [p for pid, started in known if (p := processes.get(pid)) and p.started == started]
    waiting = [processes[root], *adopted]
    found: dict[tuple[int, int], Process] = {}
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
    ticks = sum(int(value) for value in fields[11:15])
    return Process(
        pid,
        int(fields[1]),
        int(fields[19]),
        kind,
        ticks / os.sysconf("SC_CLK_TCK"),
        int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
    )
