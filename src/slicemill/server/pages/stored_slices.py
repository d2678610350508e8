"""State slices of joins, as of their last checkpoints, with the history of slice borders.

A state slice holds the rows of a join between two ages, the slice borders. Each checkpoint is read once for
all clients. A background thread reads the checkpoints of tasks with joins even without clients, so that the
history of borders is complete. The thread reads at most every ten seconds, and for at most 1/500 of the time.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from slicemill.api.mill import Mill
from slicemill.operators.join.multiway_spec import SharedMultiJoin
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.join.statistics import Cuts
from slicemill.operators.protocol import longest_us
from slicemill.operators.specs import Source
from slicemill.runtime.state_view import StoredSlice, cuts_of_task, slices_of_task
from slicemill.time import SECOND_US, wall_clock_us

_LOGGER = logging.getLogger("slicemill")
_MOVES = 400
_READ_EVERY_S = 10.0
_READING_SHARE = 500  # divisor of the time that may be spent on reading: at most 1/500


_JOINS = (SharedJoin, SharedMultiJoin)


@dataclass(frozen=True, slots=True)
class CutMove:
    """Change of the slice borders in a join's state (ages at which slices end).

    `part` names the part of the state; `used` has the ages of the new borders in seconds.
    """

    at_s: float
    subtask: int
    part: str
    used: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StoredChain:
    """State slices of one task's joins, with current and earlier slice borders."""

    task: str
    slices: list[StoredSlice]
    cuts: list[tuple[int, Cuts]]
    moves: list[CutMove]


class SliceWatch:
    """Reader of the state slices of all joins, which records changes of slice borders."""

    def __init__(self, mill: Mill) -> None:
        self._mill = mill
        self._read: dict[str, tuple[object, StoredChain]] = {}
        self._moves: dict[str, deque[CutMove]] = {}
        self._reading = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="cuts", daemon=True)

    def start(self) -> None:
        """Start to record changes of slice borders."""
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _loop(self) -> None:
        wait_s = _READ_EVERY_S
        while not self._stop.wait(wait_s):
            began = time.thread_time()
            try:
                self.chains(self._join_tasks())
            except Exception:  # files may disappear while they are read; the next pass reads the new state
                _LOGGER.debug("state slices could not be read", exc_info=True)
            wait_s = max(_READ_EVERY_S, _READING_SHARE * (time.thread_time() - began))

    def _join_tasks(self) -> set[str]:
        """Return the ids of the tasks whose joins store state slices."""
        graph = self._mill.running.plan.graph
        return {
            task.id
            for task in self._mill.dispatcher.running.tasks
            if any(
                node in graph.nodes and isinstance(graph[node].operator, _JOINS)
                for node in task.plan.task.nodes
            )
        }

    def chains(self, tasks: Iterable[str] | None = None) -> list[StoredChain]:
        """Return the state slices of some tasks, or of all tasks that have any."""
        with self._reading:
            known = self._mill.home.tasks
            for gone in self._read.keys() - known.keys():
                del self._read[gone]
                self._moves.pop(gone, None)
            wanted = known.keys() if tasks is None else known.keys() & set(tasks)
            found = [self._chain(task) for task in sorted(wanted)]
        return [chain for chain in found if chain.slices]

    def _chain(self, task: str) -> StoredChain:
        mark = self._mill.home.tasks[task].get("checkpoint")
        before = self._read.get(task)
        if before is not None and before[0] == mark:
            return before[1]
        slices, cuts = slices_of_task(self._mill.home, task), cuts_of_task(self._mill.home, task)
        moves = self._moves.setdefault(task, deque(maxlen=_MOVES))
        last = {(move.subtask, move.part): move.used for move in moves}
        for subtask, one in cuts:
            if last.get((subtask, one.part)) != one.used:
                moves.append(CutMove(wall_clock_us() / SECOND_US, subtask, one.part, one.used))
        chain = StoredChain(task, slices, cuts, list(moves))
        self._read[task] = mark, chain
        return chain


def window_extents(mill: Mill, task: str) -> dict[str, float]:
    """Return each query's largest bounded join window in a task, in seconds."""
    running = mill.dispatcher.tasks.get(task)
    found: dict[str, float] = {}
    for node in running.plan.task.nodes if running is not None else ():
        operator = mill.running.plan.graph[node].operator if node in mill.running.plan.graph.nodes else None
        if isinstance(operator, _JOINS):
            for member in operator.members:
                extent_us = longest_us(member.windows)
                if extent_us is not None:
                    name = member.name.split(":")[0]
                    found[name] = max(found.get(name, 0.0), extent_us / SECOND_US)
    return found


def inputs_of(mill: Mill, task: str) -> list[str]:
    """Return names for the inputs of a task's join.

    The name of an input is its stream, or all streams that it depends on.
    """
    running, graph = mill.dispatcher.tasks.get(task), mill.running.plan.graph
    nodes = running.plan.task.nodes if running is not None else ()
    joins = [graph[node] for node in nodes if node in graph.nodes]
    joins = [node for node in joins if isinstance(node.operator, SharedJoin)]
    if len(joins) != 1:
        return []
    named = {node: name for name, node in graph.streams.items()}
    found = []
    for source in joins[0].inputs:
        behind = [graph[node].operator for node in graph.ancestors(source)]
        streams = sorted(operator.stream for operator in behind if isinstance(operator, Source))
        found.append(named.get(source) or ", ".join(streams))
    return found


def name_part(part: str, inputs: list[str]) -> str:
    """Replace the input number in the name of a state part by the input's name, if known.

    >>> name_part("input 1, waiting", ["auction", "bid"])
    'bid, waiting'
    """
    found = re.match(r"input (\d+)", part)
    if found is None or int(found[1]) >= len(inputs):
        return part
    return inputs[int(found[1])] + part[found.end() :]
