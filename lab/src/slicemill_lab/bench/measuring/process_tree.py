"""CPU time and memory of a process tree: a driver, its JVM and Python workers.

    with measured() as usage:
        work()
    print(usage.cpu_s, usage.wall_s, usage.peak_bytes)

The kernel adds the time of an ended child to the parent that waited for it. But the daemon of Spark's Python
workers does not wait for them, and orphans have no parent that waits. So a thread samples the tree several
times per second. An ended process counts with its last sampled time, or with the time reported by its parent
if that is more. The difference, and processes that ended between two samples, are reported as `ended`. The
CPU time of the sampling thread is excluded.

Memory is the sum of resident memory over processes. Pages shared by several processes count for each of them.
A JVM keeps heap that earlier phases have allocated. Consider both when comparing phases of one run.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil

SAMPLE_S = 0.1


@dataclass(slots=True)
class Usage:
    """Resource use of a phase, set at its end. `cpu_s_by_kind` separates the driver, `java` and others."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_bytes: int = 0
    cpu_s_by_kind: dict[str, float] = field(default_factory=dict)

    def figures(self, rows: int | None = None) -> dict[str, Any]:
        """Return figures for display, with rows per CPU second if `rows` is given."""
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
def measured(root: int | None = None, sample_s: float = SAMPLE_S) -> Iterator[Usage]:
    """Measure this process, or the process `root`, with all descendants while the block runs."""
    usage, tree, ended = Usage(), Tree(root or os.getpid()), threading.Event()
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
        if root is None:
            usage.cpu_s_by_kind["driver"] = max(0.0, usage.cpu_s_by_kind["driver"] - looking_s)
        usage.cpu_s = sum(usage.cpu_s_by_kind.values())
        usage.peak_bytes = tree.peak_bytes


@dataclass(frozen=True, slots=True)
class _Seen:
    """Sample of a process. `waited_s` is the CPU time of ended descendants that were waited for."""

    parent: int
    kind: str
    own_s: float
    waited_s: float
    resident_bytes: int


@dataclass(slots=True)
class _Account:
    """Accumulated data of a process: its last sample, and its ended children."""

    seen: _Seen
    waited_at_first_s: float
    ended_s: float = 0.0

    def total_s(self) -> float:
        waited_s = self.seen.waited_s - self.waited_at_first_s
        return self.seen.own_s + self.waited_at_first_s + max(waited_s, self.ended_s)


class Tree:
    """Descendants of a process, sampled repeatedly."""

    def __init__(self, root: int) -> None:
        self.peak_bytes = 0
        self._root = psutil.Process(root)
        self._living: dict[psutil.Process, _Account] = {}
        self._orphans_s = 0.0
        self._ended_own_s: dict[str, float] = {}

    def look(self) -> Mapping[str, float]:
        """Take a sample, and return CPU seconds so far by kind of process."""
        found = self._look_at(_descendants(self._root, self._living))
        self._bury([process for process in self._living if process not in found])
        for process, seen in found.items():
            self._living.setdefault(process, _Account(seen, seen.waited_s)).seen = seen
        self.peak_bytes = max(self.peak_bytes, sum(seen.resident_bytes for seen in found.values()))
        seconds = dict(self._ended_own_s)
        for seen in found.values():
            seconds[seen.kind] = seconds.get(seen.kind, 0.0) + seen.own_s
        total_s = self._orphans_s + sum(account.total_s() for account in self._living.values())
        return {**seconds, "ended": total_s - sum(seconds.values())}

    def _look_at(self, processes: Iterable[psutil.Process]) -> dict[psutil.Process, _Seen]:
        found = {}
        for process in processes:
            # A process that ends during the sample counts as ended.
            with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
                times = process.cpu_times()
                found[process] = _Seen(
                    process.ppid(),
                    "driver" if process == self._root else process.name(),
                    times.user + times.system,
                    times.children_user + times.children_system,
                    process.memory_info().rss,
                )
        return found

    def _bury(self, ended: Iterable[psutil.Process]) -> None:
        by_pid = {process.pid: account for process, account in self._living.items()}
        # Children start after their parents, so the reverse order processes children first.
        for process in sorted(ended, key=lambda ended: (ended.create_time(), ended.pid), reverse=True):
            account = self._living.pop(process)
            kind = account.seen.kind
            self._ended_own_s[kind] = self._ended_own_s.get(kind, 0.0) + account.seen.own_s
            if account.seen.parent in by_pid:
                by_pid[account.seen.parent].ended_s += account.total_s()
            else:
                self._orphans_s += account.total_s()


def _descendants(root: psutil.Process, known: Iterable[psutil.Process]) -> set[psutil.Process]:
    """Return the descendants of the root, including known processes that lost their parents."""
    found: set[psutil.Process] = set()
    for process in (root, *known):
        if process not in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= {process, *process.children(recursive=True)}
    return found
