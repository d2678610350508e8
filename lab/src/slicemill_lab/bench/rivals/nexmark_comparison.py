"""Comparison of NEXMark queries over the same files: slicemill, Spark and Flink in separate processes.

A query processes the first files as a warm-up. Measured are the CPU seconds of all processes of the system
from then on, until the results of all other files are committed. Systems take turns, and the best round
counts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slicemill.errors import SlicemillError
from slicemill.runtime.spark_session import ensure_java_home
from slicemill_lab.bench.files.comparison import tell
from slicemill_lab.bench.inputs.bids import Feed
from slicemill_lab.bench.inputs.nexmark_answers import ANSWERS
from slicemill_lab.bench.inputs.nexmark_files import COLUMNS, NexmarkFiles, write_csv
from slicemill_lab.bench.inputs.nexmark_queries import FOLDER, script
from slicemill_lab.bench.live.processes import Program
from slicemill_lab.bench.measuring.process_tree import Usage, measured
from slicemill_lab.bench.rivals.nexmark_on_flink import FLINK_STREAMS, FLINK_VIEWS, ON_FLINK
from slicemill_lab.bench.rivals.nexmark_on_spark import ON_SPARK, answer_on_spark

OURS, SPARK, FLINK = "slicemill", "Spark", "Flink"
_FLINK_PROGRAM = str(Path(__file__).with_name("nexmark_flink_side.py"))
# Its windows follow the wall clock, so its results are not predictable.
BY_CLOCK = "q12"
_SINK = " WITH (sink = 'parquet:out/nexmark/q10')"
_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class NexmarkPhase:
    """Measurements of a system for the rows after the warm-up files."""

    rows: int
    usage: Usage
    load: float

    def figures(self) -> dict[str, Any]:
        return {**self.usage.figures(self.rows), "load of the machine, 1 min": round(self.load, 1)}


@dataclass(slots=True)
class NexmarkComparison:
    """Programs of the systems over some files, with the best phase of each query.

    `flink_python` is the Python with Flink, if there is one.
    """

    folder: Path
    root: Path
    files: NexmarkFiles
    programs: ExitStack
    flink_python: Path | None = None
    best: dict[tuple[str, str], NexmarkPhase] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    _running: dict[str, Program] = field(default_factory=dict)
    _runs: int = 0

    def run(self, names: Sequence[str], rounds: int) -> None:
        """Run each query on all systems, in turns."""
        known = [name for name in names if name != BY_CLOCK]
        ours = self.files.expected(self.root, {name: ANSWERS[name] for name in known})
        spark = self.files.expected(self.root, {name: answer_on_spark(name) for name in known})
        for name in names:
            for _ in range(rounds):
                self._phase(name, OURS, self.our_job((name,)), ours)
                self._phase(name, SPARK, self.spark_job(name), spark)
                if self.flink_python is not None and name in ON_FLINK:
                    self._flink_phase(name)

    def run_ours(self, title: str, names: Sequence[str], rounds: int) -> None:
        """Run several queries in one mill."""
        known = {name: ANSWERS[name] for name in names if name != BY_CLOCK}
        expected = self.files.expected(self.root, known)
        for _ in range(rounds):
            self._phase(title, OURS, self.our_job(names), expected)

    def our_job(self, names: Sequence[str]) -> dict[str, Any]:
        # A file sink would add writes; the results are in the log anyway.
        text = script(self.root, names).replace(_SINK, "")
        return {
            "root": str(self.root),
            "queries": list(names),
            "script": re.sub(
                r"SOURCE 'nexmark://(\w+)[^']*'", r"USING parquet OPTIONS (path 'FOLDER/\1')", text
            ),
        }

    def spark_job(self, name: str) -> dict[str, Any]:
        query = ON_SPARK[name]
        return {
            "name": name,
            "mode": query.mode,
            "text": query.text,
            "streams": dict(COLUMNS),
            "side": str(self.root / FOLDER / "side.csv"),
        }

    def _flink_phase(self, name: str) -> None:
        """Run Flink over the warm-up files, and then over all files, as finite inputs."""
        folder = self.folder / "csv"
        if not folder.exists():
            write_csv(folder, self.files, self.root)
        program = self._program(FLINK)
        job = {
            "name": name,
            "text": ON_FLINK[name].text,
            "streams": dict(FLINK_STREAMS),
            "views": dict(FLINK_VIEWS),
            "folder": str(folder),
            # Counting runs another query over the same files, so it is done once.
            "count": (name, FLINK) not in self.best,
        }
        program.say(json.dumps(job))
        _expect(program, "first")
        with measured(program.pid) as usage:
            program.say("")
            _expect(program, "done")
        load = os.getloadavg()[0]
        counts: dict[str, int] = json.loads(program.line(_PATIENCE_S))
        known = {name: ANSWERS[name]} if name != BY_CLOCK else {}
        self._hold(FLINK, counts, self.files.expected(self.root, known, ended=True))
        rows = self.files.warm_rows + self.files.rows - len(self.files.warm)
        self._keep(name, FLINK, NexmarkPhase(rows, usage, load))

    def _hold(self, system: str, counts: Mapping[str, int], expected: Mapping[str, int]) -> None:
        for query, right in expected.items():
            if counts.get(query, right) != right:
                self.wrong[f"{query}, {system}"] = f"{counts[query]} rows instead of {right}"

    def _keep(self, name: str, system: str, phase: NexmarkPhase) -> None:
        """Store the phase if it is the best so far."""
        tell(f"{name}, {system}: {phase.usage.cpu_s:.2f} CPU s, {phase.usage.wall_s:.1f} s")
        known = self.best.get((name, system))
        if known is None or phase.usage.cpu_s < known.usage.cpu_s:
            self.best[name, system] = phase

    def _phase(self, name: str, system: str, job: Mapping[str, Any], expected: Mapping[str, int]) -> None:
        self._runs += 1
        folder = self.folder / f"run-{self._runs}"
        feeds = {stream: Feed(folder / stream) for stream in self.files.warm}
        for stream, feed in feeds.items():
            feed.arrive(self.files.warm[stream])
        program = self._program(system)
        text = json.dumps({**job, "folder": str(folder)}).replace("FOLDER/", f"{folder}/")
        program.say(text)
        _expect(program, "first")
        with measured(program.pid) as usage:
            # A system that polls for files starts with them at once.
            for stream, feed in feeds.items():
                feed.arrive(self.files.measured[stream])
            program.say("")
            _expect(program, "done")
        load = os.getloadavg()[0]
        counts: dict[str, int] = json.loads(program.line(_PATIENCE_S))
        shutil.rmtree(folder, ignore_errors=True)
        self._hold(system, counts, expected)
        batch = system == SPARK and ON_SPARK[name].mode == "batch"
        # A batch query reads the warm-up files as well.
        phase = NexmarkPhase(self.files.rows + (self.files.warm_rows if batch else 0), usage, load)
        self._keep(name, system, phase)

    def _program(self, system: str) -> Program:
        if system not in self._running:
            tell(f"starting {system}")
            command = [sys.executable, "-m", "slicemill_lab.bench.rivals.nexmark_side", system.lower()]
            environment: dict[str, str] = {}
            if system == FLINK:
                # Flink's environment has no slicemill, and modules next to the program must not be
                # importable.
                command = [str(self.flink_python), _FLINK_PROGRAM]
                environment = {"PYTHONPATH": "", "PYTHONSAFEPATH": "1", "JAVA_HOME": str(ensure_java_home())}
            self._running[system] = program = Program(system, command, self.folder, environment)
            self.programs.callback(program.stop)
        return self._running[system]

    def times(self, system: str, name: str) -> float | None:
        """Return rows per CPU second relative to another system, or None if it has not run the query."""
        ours, other = self.best[name, OURS], self.best.get((name, system))
        if other is None:
            return None
        return (other.usage.cpu_s / other.rows) / (ours.usage.cpu_s / ours.rows)

    def all_times(self, system: str, names: Sequence[str]) -> dict[str, float]:
        """Return the rounded ratios of all queries that the other system has run."""
        return {name: round(ratio, 2) for name in names if (ratio := self.times(system, name)) is not None}

    def figures(self) -> dict[str, Any]:
        return {f"{name}, {system}": phase.figures() for (name, system), phase in self.best.items()}


def _expect(program: Program, word: str) -> None:
    said = json.loads(program.line(_PATIENCE_S))
    if said != word:
        raise SlicemillError(f"{program.name} said {said!r} instead of {word!r}")
