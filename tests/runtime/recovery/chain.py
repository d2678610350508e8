"""Running a chain of kills on one home, and checking what is there after each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runtime.recovery import child, keeper, scenario
from runtime.recovery.kill import DRIVER, VARIABLE, Point, occurrences
from runtime.recovery.points import DRAINING, Links

_TESTS = Path(__file__).parents[2]
_DEADLINE_S = 300
_LAST_FILES = 3


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """In which a process finds the modules of tests."""
    return {**os.environ, "PYTHONPATH": str(_TESTS), "PYSPARK_PYTHON": sys.executable, **more}


@contextmanager
def shared_jvm() -> Iterator[Mapping[str, str]]:
    """A JVM that outlives drivers, as the environment in which they find it."""
    with tempfile.TemporaryDirectory() as folder:
        orders = {VARIABLE: str(Path(folder) / "order.json")}
        with subprocess.Popen(
            [sys.executable, "-m", keeper.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(orders),
            start_new_session=True,
        ) as process:
            try:
                assert process.stdout is not None
                gateway = json.loads(process.stdout.readline())
                yield {
                    **orders,
                    "PYSPARK_GATEWAY_PORT": str(gateway["port"]),
                    "PYSPARK_GATEWAY_SECRET": gateway["secret"],
                }
            finally:
                os.killpg(process.pid, signal.SIGKILL)


@dataclass
class Chain:
    """One home. Without a `jvm` to share, each driver has its own, which is killed with it."""

    folder: Path
    jvm: Mapping[str, str] | None
    runs: int = 0

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def run(self, links: Links) -> None:
        """Kill at each point in turn, then run to the end; what comes out is exact after every run."""
        feed = scenario.Feed(self.folder, links.files * len(links.points) + _LAST_FILES)
        truth = feed.truth(self.folder / "all")
        if not links.files:
            feed.release(feed.rest)
        for point in links.points:
            feed.release(links.files)
            status, reached = self._drive(feed.lines, point, links.phase)
            assert reached >= point.nth, f"{point.name}: not reached, status {status}"
            assert status == (-signal.SIGKILL if point.victim == DRIVER else 0), (point.name, status)
            for query, rows in scenario.found(self.home).items():
                assert not rows - truth[query], (point.name, query, rows - truth[query])
        feed.release(feed.rest)
        status, _ = self._drive(feed.lines)
        assert status == 0
        scenario.compare(scenario.found(self.home), truth)

    def _drive(self, lines: int, point: Point | None = None, phase: str = DRAINING) -> tuple[int, int]:
        """Run a driver until it ends, one way or another: its status, and how often the point was reached."""
        self.runs += 1
        counter = self.folder / f"counter-{self.runs}"
        work = child.Work(
            child.LOCAL if self.jvm is None else child.SHARED,
            str(self.home),
            str(self.folder),
            lines,
            2,
            phase == DRAINING,
            point,
            phase,
            str(counter),
        )
        known = self.jvm or {VARIABLE: str(self.folder / "order.json")}
        Path(known[VARIABLE]).unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-m", child.__name__, work.encoded()],
            env=environment(known),
            start_new_session=True,
        )
        try:
            return process.wait(_DEADLINE_S), occurrences(counter)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
