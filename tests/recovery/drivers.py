"""Starting drivers that are to be killed, and a JVM that outlives them: starting that takes longest."""

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

from recovery import child, keeper
from recovery.kill import VARIABLE

_TESTS = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Drivers:
    """One driver at a time, forked from a process that has imported what they need."""

    parent: subprocess.Popen[str]
    order: Path

    def run(self, work: child.Work) -> int:
        """Run a driver until it ends, one way or another, and say with which status."""
        self.order.unlink(missing_ok=True)
        assert self.parent.stdin is not None and self.parent.stdout is not None
        print(work.encoded(), file=self.parent.stdin, flush=True)
        return int(self.parent.stdout.readline())


@contextmanager
def drivers_with_a_jvm_each() -> Iterator[Drivers]:
    """It is killed together with its driver."""
    with tempfile.TemporaryDirectory() as folder:
        order = Path(folder) / "order.json"
        with _process(child.__name__, {VARIABLE: str(order)}) as parent:
            yield Drivers(parent, order)


@contextmanager
def drivers_that_share_a_jvm() -> Iterator[Drivers]:
    with tempfile.TemporaryDirectory() as folder:
        order = Path(folder) / "order.json"
        with _process(keeper.__name__, {VARIABLE: str(order)}) as kept:
            assert kept.stdout is not None
            gateway = json.loads(kept.stdout.readline())
            found = {
                VARIABLE: str(order),
                child.SHARED: str(gateway["port"]),
                "PYSPARK_GATEWAY_SECRET": gateway["secret"],
            }
            with _process(child.__name__, found) as parent:
                yield Drivers(parent, order)


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """In which a process finds the modules of tests."""
    known = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(_TESTS), *([known] if known else [])])
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, **more}


@contextmanager
def _process(module: str, more: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(more),
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
