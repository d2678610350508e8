"""The ring's join on the engine: N subtasks on as many workers of a real standalone cluster (S33, S53).

    python -m slicemill_lab.slice.ring.on_cluster MASTER SEED RUNS

This command is the driver. It is a separate process, because a process has only one Spark session. A node of
the ring is a subtask with its own worker. Every pair of members of a result must match, by a hash of the
pair. Comparing a pair takes longer in the middle and large joins, which compare more features. A second's
tuples arrive at once when those of the previous second are done, so the response is the time for a second's
tuples. In experiments on adaptation, each second's tuples arrive in a second of real time.

If an experiment is given a pool, its workers are in this process, and there is no cluster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import combinations
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.api.mill import Environment, Mill
from slicemill.errors import SlicemillError
from slicemill.metrics.profiling import Stages, recording
from slicemill.metrics.run_record import RunRecord
from slicemill.runtime.state_view import slices_of
from slicemill.runtime.workers.inline import InlinePool
from slicemill.runtime.workers.sharing import HANDLER
from slicemill_lab import on_engine
from slicemill_lab.experiment import Scale
from slicemill_lab.on_engine import MovedClock
from slicemill_lab.slice.ring.runs import RATE
from slicemill_lab.spark_clusters import standalone

EXECUTORS = 3
FEATURES = {"small": 0, "middle": 8, "large": 32}
"""Number of features that a class of join compares for a pair."""
CLUSTER_WINDOW_S: Mapping[Scale, float] = {"small": 1.0, "full": 4.0}
CLUSTER_NODES: Mapping[Scale, tuple[int, ...]] = {"small": (1, 2, 4), "full": (1, 2, 4, 6, 8)}
SECONDS: Mapping[Scale, int] = {"small": 3, "full": 10}
_PATIENCE_S = 3_600
_US = 1_000_000
_HASHES = 1_000


@dataclass(frozen=True, slots=True)
class NodesRun:
    """A join of equal streams on a number of nodes. `rates` are tuples per second, for each second."""

    nodes: int
    placement: str
    window_s: float
    rates: tuple[int, ...]
    streams: int = 3
    cost: str = "small"
    selectivity: float = 0.1
    adapts: bool | None = None
    """True if the engine may change the number of subtasks. If it is not None, tuples arrive in real time."""

    @property
    def names(self) -> str:
        return "abcdefghi"[: self.streams]

    def script(self) -> str:
        """Return streams and join: for placement by time a round per further stream, otherwise one query."""
        declared = [f"CREATE STREAM {s} (h bigint, ts timestamp) ORDER BY ts;" for s in self.names]
        return "\n".join([*declared, *(self._rounds() if self.placement == "time" else [self._at_once()])])

    def _at_once(self) -> str:
        tests = [self._matches(f"{x}.h", f"{y}.h") for x, y in combinations(self.names, 2)]
        items = ", ".join(f"{stream}.h AS h{stream}" for stream in self.names)
        sources = ", ".join(f"{stream} {self._window}" for stream in self.names)
        return f"CREATE QUERY q AS SELECT {items} FROM {sources} WHERE {' AND '.join(tests)};"

    def _rounds(self) -> list[str]:
        """Return one join of two per round, with partial results as a stream (S31)."""
        first, others = self.names[0], self.names[1:]
        before, made = first, f"h AS h{first}, ts AS t{first}"
        found = [f"CREATE STREAM p{first} AS SELECT {made} FROM {first};"]
        for number, stream in enumerate(others, start=1):
            members = self.names[:number]
            tests = [self._matches(f"p.h{member}", f"{stream}.h") for member in members]
            # A member may be older than the window although the partial result is not.
            tests += [f"{stream}.ts < p.t{member} + {self._interval}" for member in members]
            items = [f"p.{letter}{member}" for member in members for letter in "ht"]
            last = number == len(others)
            items += [f"{stream}.h AS h{stream}", f"{stream}.ts AS t{stream}"]
            found.append(
                f"CREATE {'QUERY q' if last else f'STREAM p{members}{stream}'} AS SELECT {', '.join(items)} "
                f"FROM p{before} {self._window} AS p, {stream} {self._window} WHERE {' AND '.join(tests)};"
            )
            before = f"{members}{stream}"
        return found

    @property
    def _window(self) -> str:
        return f"[RANGE {round(1000 * self.window_s)} MILLISECONDS]"

    @property
    def _interval(self) -> str:
        return f"INTERVAL '{self.window_s:g}' SECOND"

    def _matches(self, x: str, y: str) -> str:
        same = f"({x} + {y}) % {_HASHES} < {round(_HASHES * self.selectivity)}"
        features = [f"sqrt(abs({x} - {n} * {y}))" for n in range(1, FEATURES[self.cost] + 1)]
        return f"{same} AND {' + '.join(features)} >= 0" if features else same

    @property
    def warming(self) -> int:
        """Number of seconds that fill the window."""
        return ceil(self.window_s)

    def seconds(self, seed: int) -> Iterator[dict[str, pa.Table]]:
        """Yield the tuples of each second."""
        for number, rate in enumerate(self.rates):
            tables = {}
            for place, stream in enumerate(self.names):
                chance = np.random.default_rng((seed, place, number))
                rows = max(1, chance.poisson(rate))
                times = np.sort(chance.integers(0, _US, rows)) + number * _US
                tables[stream] = pa.table(
                    {
                        "h": chance.integers(0, _HASHES, rows),
                        "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
                    }
                )
            yield tables


@dataclass(slots=True)
class MeasuredNodes:
    """Measurements of a run.

    `response_s` is the wall time for each second's tuples after the first window. State counts rows at the
    end, of all subtasks and of the fullest. CPU seconds are by stage, in total, and of the slowest subtask.
    """

    response_s: list[float] = field(default_factory=list)
    state: int = 0
    largest: int = 0
    tuples: int = 0
    results: int = 0
    subtasks: int = 1
    moved: int = 0
    stages_s: dict[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0
    slowest_cpu_s: float = 0.0


def steady(scale: Scale, rate: int = RATE) -> tuple[int, ...]:
    """Return a constant rate for a whole run: until the window is full, and for the measured time."""
    return (rate,) * (ceil(CLUSTER_WINDOW_S[scale]) + SECONDS[scale])


def measured_nodes(runs: Sequence[NodesRun], seed: int) -> list[MeasuredNodes]:
    """Execute the runs one after the other on one cluster, or with workers in this process."""
    if on_engine.make_pool() is not None:
        return [_measure(run, seed, pool=InlinePool(run.nodes, HANDLER)) for run in runs]
    most = max(run.nodes for run in runs)
    with tempfile.TemporaryDirectory(prefix="slicemill-lab-") as folder, ExitStack() as running:
        cores = most // EXECUTORS + 1
        cluster = running.enter_context(standalone(Path(folder), cores, EXECUTORS, stay=most))
        done = subprocess.run(
            [
                *(sys.executable, "-m", __spec__.name, cluster.master, str(seed)),
                json.dumps([asdict(run) for run in runs]),
            ],
            env={**os.environ, **cluster.environment},
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    if done.returncode:
        raise SlicemillError(f"the driver on a cluster failed: {done.stderr.strip()[-500:]}")
    return [MeasuredNodes(**one) for one in json.loads(done.stdout.splitlines()[-1])]


class _NotingMill(Mill):
    """Mill that collects the records of its runs."""

    def __init__(self, environment: Environment, **named: Any) -> None:
        self.runs: list[RunRecord] = []
        self._environment = environment
        super().__init__(**named)

    def _after_run(self, run: RunRecord) -> None:
        self.runs.append(run)
        super()._after_run(run)


def _measure(run: NodesRun, seed: int, **where: Any) -> MeasuredNodes:
    found, clock = MeasuredNodes(), MovedClock()
    with tempfile.TemporaryDirectory(prefix="slicemill-lab-") as home, ExitStack() as running:
        mill = _NotingMill(
            Environment(clock, read_sources=False),
            home=Path(home),
            subtasks={None: run.nodes, True: None, False: 1}[run.adapts],
            placement=run.placement if run.nodes > 1 else "one",
            **where,
        )
        running.enter_context(mill)
        mill.execute(run.script())
        mill.open()
        mill.rescaler.set_workers(run.nodes)
        paced = run.adapts is not None and "spark" in where
        began_all = time.monotonic()
        stages: Stages = {}
        for number, tables in enumerate(run.seconds(seed)):
            clock.now += _US
            if number == run.warming:
                mill.runs.clear()
                stages = running.enter_context(recording())
            due = began_all + number if paced else time.monotonic()
            time.sleep(max(0.0, due - time.monotonic()))
            for stream, table in tables.items():
                mill.feed(stream, table)
            mill.dispatcher.look()
            mill.dispatcher.run_all()
            if number >= run.warming:
                found.response_s.append(time.monotonic() - due)
                found.tuples += sum(table.num_rows for table in tables.values())
        found.moved = mill.dispatcher.balancing.moved
        mill.dispatcher.checkpoint_all()
        rows: Counter[tuple[str, int]] = Counter()
        for held in slices_of(mill.home):
            rows[held.task, held.subtask] += held.rows
        found.state, found.largest = sum(rows.values()), max(rows.values(), default=0)
        mill.dispatcher.end_streams()
        mill.dispatcher.run_all()
        found.results = mill.queries["q"].log.rows
        found.subtasks = max(task.subtasks for task in mill.dispatcher.tasks.values())
        cpu_s: dict[tuple[str, int], float] = defaultdict(float)
        for record in mill.runs:
            for subtask in record.subtasks:
                cpu_s[record.task, subtask.subtask] += subtask.cpu_s
        found.cpu_s, found.slowest_cpu_s = sum(cpu_s.values()), max(cpu_s.values())
        found.stages_s = {name: took.seconds for name, took in stages.items() if name.startswith("run: ")}
    return found


def main(master: str, seed: int, runs: Sequence[NodesRun]) -> list[MeasuredNodes]:
    from slicemill.runtime.spark_session import session
    from slicemill.runtime.workers.sharing import keep_workers

    spark = session(master)
    with keep_workers(spark.sparkContext):
        # The first run starts all workers and compiles their code.
        _measure(max(runs, key=lambda run: run.nodes), seed, spark=spark)
        found = [_measure(run, seed, spark=spark) for run in runs]
    spark.stop()
    return found


if __name__ == "__main__":
    asked = [NodesRun(**{**one, "rates": tuple(one["rates"])}) for one in json.loads(sys.argv[3])]
    print(json.dumps([asdict(one) for one in main(sys.argv[1], int(sys.argv[2]), asked)]))
