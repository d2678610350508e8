"""Run of one system with sender and subscriber: warm-up and measurement."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slicemill.errors import SlicemillError
from slicemill_lab.bench.live.processes import Program
from slicemill_lab.bench.live.queries import CATEGORIES, expected_filtered
from slicemill_lab.bench.live.samples import Samples, load
from slicemill_lab.bench.live.sender import now_us
from slicemill_lab.bench.live.systems import LiveSystem, Place
from slicemill_lab.bench.measuring.process_tree import Tree

_FIRST_RESULT_S = 300.0
_SAYS_PORT_S = 30.0
_LOOK_S = 0.1
_STARTING_RATE = 50


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of warm-up after the first results, of measurement, and for the remaining results."""

    warm_s: float
    watched_s: float
    rest_s: float = 2.0


@dataclass(frozen=True, slots=True)
class LatencySpan:
    """CPU use of a system during the measurement."""

    wall_s: float
    cpu_s_by_process: Mapping[str, float]

    @property
    def cores(self) -> float:
        """CPU seconds per second."""
        return sum(self.cpu_s_by_process.values()) / self.wall_s

    def figures(self) -> dict[str, Any]:
        return {
            "cores used": round(self.cores, 3),
            "cpu_s by process": {kind: round(cpu_s, 2) for kind, cpu_s in self.cpu_s_by_process.items()},
        }


@dataclass(frozen=True, slots=True)
class Watched:
    """One run: samples by stamp, CPU use, and the expected number of rows of a filter."""

    system: LiveSystem
    samples: Samples
    span: LatencySpan
    filtered: int
    load: float

    @property
    def p50_ms(self) -> float:
        return float(self.samples.figures()["p50 ms"] or float("inf"))

    @property
    def p99_ms(self) -> float:
        return float(self.samples.figures()["p99 ms"] or float("inf"))

    def figures(self) -> dict[str, Any]:
        return {
            **self.samples.figures(),
            "durability": self.system.durability,
            **self.span.figures(),
            "load of the machine, 1 min": round(self.load, 1),
        }


class Session:
    """Programs of a run. The constructor returns after the first results of all queries to wait for."""

    def __init__(self, system: LiveSystem, folder: Path, rate: float, programs: ExitStack) -> None:
        """Start the programs, and register them in `programs` to be stopped, the system first."""
        folder.mkdir(parents=True)
        self._system = system
        self._sent, self._samples = folder / "sent.npy", folder / "samples.npz"
        python = [sys.executable, "-m"]
        self._sender = Program(
            "sender", [*python, "slicemill_lab.bench.live.sender", str(self._sent)], folder
        )
        programs.callback(self._sender.stop)
        ports = json.loads(self._sender.line(_SAYS_PORT_S))
        watch = [system.watch, *system.watched(folder)]
        self._subscriber = Program(
            "subscriber", [*python, "slicemill_lab.bench.live.subscriber", str(self._samples), *watch], folder
        )
        programs.callback(self._subscriber.stop)
        port_out = int(self._subscriber.line(_SAYS_PORT_S)) if system.watch == "socket" else None
        place = Place(ports, folder, port_out)
        place.categories.write_text(CATEGORIES)
        self._program = Program(system.name, system.command(place), folder, system.environment)
        programs.callback(self._program.stop, system.interrupt)
        self._tree = Tree(self._program.pid)
        # Start at a low rate, because a backlog of the start-up phase would delay later results.
        self.rate(min(rate, _STARTING_RATE))
        self._wait_for_results()
        self.rate(rate)

    def rate(self, tuples_per_s: float) -> None:
        self._sender.say(str(tuples_per_s))

    def let_pass(self, seconds: float) -> LatencySpan:
        """Let the system run for some seconds, and return its CPU use."""
        before, began = self._tree.look(), time.monotonic()
        ends = began + seconds
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_S))
            self._program.check()
            after = self._tree.look()
        return LatencySpan(
            time.monotonic() - began, {kind: after[kind] - before.get(kind, 0.0) for kind in after}
        )

    def end(self) -> tuple[Samples, NDArray[np.int64]]:
        """Stop all programs. Return the samples, and the times and prices that were sent."""
        for program, interrupt in (
            (self._program, self._system.interrupt),
            (self._subscriber, False),
            (self._sender, False),
        ):
            program.stop(interrupt)
        return load(self._samples), np.load(self._sent)

    def _wait_for_results(self) -> None:
        ends, left = time.monotonic() + _FIRST_RESULT_S, set(self._system.queries)
        while left:
            self._program.check()
            if time.monotonic() > ends:
                raise SlicemillError(
                    f"{self._system.name}: no results of {', '.join(sorted(left))}; "
                    f"it says: {self._program.last_words()}"
                )
            left.discard(self._subscriber.line_or_none(_LOOK_S) or "")


def watch(system: LiveSystem, folder: Path, rate: float, times: Times) -> Watched:
    """Run a system. Rows whose tuples were sent during the measurement count."""
    with ExitStack() as programs:
        session = Session(system, folder, rate, programs)
        session.let_pass(times.warm_s)
        load_before = os.getloadavg()[0]
        from_us = now_us()
        span = session.let_pass(times.watched_s)
        until_us = now_us()
        session.let_pass(times.rest_s)
        samples, sent = session.end()
    watched = sent[(sent[:, 0] >= from_us) & (sent[:, 0] < until_us), 1]
    return Watched(
        system,
        samples.between(from_us, until_us),
        span,
        expected_filtered(watched),
        max(load_before, os.getloadavg()[0]),
    )
