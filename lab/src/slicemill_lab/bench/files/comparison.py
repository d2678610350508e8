"""Runs workloads on systems: warmed up, in turns, with the best of the rounds.

A system starts the queries and processes the first file of each stream. Measured are the CPU seconds of all
its processes from then on, until the last result of the other files is committed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slicemill.errors import SlicemillError
from slicemill_lab.bench.files.systems import System
from slicemill_lab.bench.files.workload import FileWorkload
from slicemill_lab.bench.inputs.bids import Feed
from slicemill_lab.bench.live.processes import Program
from slicemill_lab.bench.measuring.process_tree import Usage, measured
from slicemill_lab.claims import Claim, at_least, at_most, timed

_PATIENCE_S = 2_000.0


@dataclass(frozen=True, slots=True)
class Phase:
    """Measurements of a system for the files after the first ones."""

    rows: int
    results: int
    wrong: int
    usage: Usage
    load: float
    stages: Mapping[str, float] = field(default_factory=dict)

    @property
    def cpu_s(self) -> float:
        return self.usage.cpu_s

    @property
    def cpu_s_per_row(self) -> float:
        return self.usage.cpu_s / self.rows

    def figures(self) -> dict[str, Any]:
        return {
            "results": self.results,
            **self.usage.figures(self.rows),
            "load of the machine, 1 min": round(self.load, 1),
            **({"seconds by stage": dict(self.stages)} if self.stages else {}),
        }


def unchecked(_: Path) -> int:
    """Check that accepts everything, if only counts are compared."""
    return 0


class Comparison:
    """Programs of systems, with the best phase of each workload and system."""

    def __init__(self, folder: Path, programs: ExitStack, rounds: int) -> None:
        self.best: dict[tuple[str, str], Phase] = {}
        self.wrong = 0
        self._missing: dict[str, str] = {}
        self._folder, self._programs, self._rounds = folder, programs, rounds
        self._running: dict[tuple[str, ...], Program] = {}
        self._runs = 0

    def run(
        self,
        workload: FileWorkload,
        systems: Sequence[System],
        warm: FileWorkload | None = None,
        check: Callable[[Path], int] = unchecked,
        rounds: int | None = None,
    ) -> None:
        """Run a workload on all systems in turns, after the warm-up `warm`. `check` counts wrong results in
        our home.

        `rounds` limits workloads that take very long.
        """
        rounds = rounds or self._rounds
        able = [system for system in systems if not system.missing]
        self._missing |= {system.name: system.missing for system in systems if system.missing}
        if warm is not None:
            for system in able:
                self._phase(system, warm, unchecked)
        for number in range(rounds):
            for system in able:
                phase = self._phase(system, workload, check)
                self.keep(workload.name, system.name, phase)
                tell(
                    f"{workload.name}, {system.name}, round {number + 1} of {rounds}: "
                    f"{phase.cpu_s:.2f} CPU s, {phase.usage.wall_s:.1f} s"
                )

    def keep(self, workload: str, system: str, phase: Phase) -> None:
        self.wrong += phase.wrong
        best = self.best.get((workload, system))
        if best is None or phase.cpu_s < best.cpu_s:
            self.best[workload, system] = phase

    def _phase(self, system: System, workload: FileWorkload, check: Callable[[Path], int]) -> Phase:
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        streams = workload.streams.items()
        files = {name: stream.files(system.form) for name, stream in streams}
        feeds = {name: Feed(folder / name) for name in workload.streams}
        program = self._program(system)
        program.say(json.dumps(workload.job(system.language, system.form, folder)))
        _expect(program, "started")
        for name, feed in feeds.items():
            feed.arrive(files[name][:1])
        _expect(program, "first")
        load = os.getloadavg()[0]
        with measured(program.pid) as usage:
            for name, feed in feeds.items():
                feed.arrive(files[name][1:])
            _expect(program, "done")
        told = json.loads(program.line(_PATIENCE_S))
        program.say("")
        _expect(program, "stopped")
        wrong = check(folder / "home") if system.name == "slicemill" else 0
        # Flink still removes its checkpoints after a job has ended.
        shutil.rmtree(folder, ignore_errors=True)
        expected = [query.expected for query in workload.queries]
        wrong += sum(abs(count - right) for count, right in zip(told["counts"], expected, strict=True))
        results = sum(expected) - sum(query.first for query in workload.queries)
        load = max(load, os.getloadavg()[0])
        return Phase(workload.rows, results, wrong, usage, load, told["stages"])

    def _program(self, system: System) -> Program:
        if system.command not in self._running:
            tell(f"starting {system.name}")
            program = Program(system.name, system.command, self._folder, system.environment)
            self._programs.callback(program.stop)
            self._running[system.command] = program
        return self._running[system.command]

    def at_most_part(
        self, workload: str, system: str, rival: str, part: int, rivals_workload: str | None = None
    ) -> Claim:
        """Claim that our CPU time is at most 1 / `part` of a rival's, per row if the rival had fewer rows."""
        what = f"{workload}: CPU seconds of {rival} / of {system}"
        theirs_name = rivals_workload or workload
        ours, theirs = self.best.get((workload, system)), self.best.get((theirs_name, rival))
        if ours is None or theirs is None:
            return self.not_measured(what, f"≥ {part}", system, rival)
        note = f"{theirs.cpu_s:.2f} s, {ours.cpu_s:.2f} s"
        if theirs.rows != ours.rows:
            note += f"; per row, as {rival} had {theirs.rows} rows and {system} {ours.rows}"
        return timed(at_least(what, theirs.cpu_s_per_row / ours.cpu_s_per_row, part, note))

    def not_measured(self, what: str, expected: str, *systems: str) -> Claim:
        why = "; ".join(f"{name}: {self._missing[name]}" for name in systems if name in self._missing)
        return timed(Claim(what, expected, "not measured", False, why or "it was not run"))

    def adds_no_more(self, few: str, many: str, system: str, before: str) -> Claim:
        """Claim that additional queries add no more CPU time than in an earlier version.

        The claim compares differences instead of ratios, as a ratio with a negative difference could hold by
        accident.
        """
        what = f"{many} after {few}: CPU seconds added, beside those added in {before}"
        found = [self.best.get((name, side)) for side in (system, before) for name in (few, many)]
        if any(phase is None for phase in found):
            return self.not_measured(what, "≤ as before", system, before)
        now_few, now_many, was_few, was_many = (phase.cpu_s for phase in found if phase is not None)
        note = f"{now_few:.2f} to {now_many:.2f} s, before {was_few:.2f} to {was_many:.2f} s"
        return timed(at_most(what, now_many - now_few, was_many - was_few, note))

    def counted(self) -> Claim:
        return at_most("results too many, missing or wrong, all systems", self.wrong, 0)

    def figures(self) -> dict[str, Any]:
        named: dict[str, Any] = {
            f"{workload}, {system}": phase.figures() for (workload, system), phase in self.best.items()
        }
        return named | {f"{name}": f"not measured: {why}" for name, why in self._missing.items()}


def _expect(program: Program, word: str) -> None:
    said = json.loads(program.line(_PATIENCE_S))
    if said != word:
        raise SlicemillError(f"{program.name} said {said!r} instead of {word!r}")


def tell(what: str) -> None:
    """Print progress to standard error."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
