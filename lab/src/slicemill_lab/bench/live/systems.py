"""Systems of the latency benchmark, with the commands that start them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from slicemill_lab.bench.live.queries import CONDITION, script

Ports: TypeAlias = Mapping[str, int]

# Without its benchmark, a mill ends by itself after this time.
_AT_MOST = "30m"

RUN = (sys.executable, "-c", "from slicemill.cli import main; main()")


@dataclass(frozen=True, slots=True)
class Place:
    """Parameters of a system: ports of the streams, its folder, and the subscriber's port."""

    ports: Ports
    folder: Path
    port_out: int | None

    @property
    def categories(self) -> Path:
        return self.folder / "category.csv"


@dataclass(frozen=True, slots=True)
class LiveSystem:
    """A system. `watch` and `watched` are arguments of the subscriber; `queries` are those to wait for."""

    name: str
    durability: str
    queries: tuple[str, ...]
    watch: Literal["home", "socket", "folder"]
    watched: Callable[[Path], Sequence[str]]
    command: Callable[[Place], Sequence[str]]
    interrupt: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


def mill(queries: Mapping[str, str], waited_for: Sequence[str]) -> LiveSystem:
    """Return slicemill's `run` command, with a home that the subscriber follows."""

    def command(place: Place) -> Sequence[str]:
        file = place.folder / "queries.esl"
        file.write_text(script(queries, place.ports, place.categories), encoding="utf-8")
        home = str(place.folder / "home")
        return [*RUN, "run", str(file), "--home", home, "--for", _AT_MOST, "--rows", "0"]

    return LiveSystem(
        "slicemill",
        "process: rows are in the journal before they are seen, and survive kill -9; not a loss of power",
        tuple(waited_for),
        "home",
        lambda folder: [str(folder / "home"), *queries],
        command,
        interrupt=True,
    )


def spark(case: str, waited_for: Sequence[str]) -> LiveSystem:
    def command(place: Place) -> Sequence[str]:
        program = [sys.executable, "-m", "slicemill_lab.bench.live.spark_side"]
        places = [str(place.port_out), str(place.folder / "checkpoint"), str(place.categories)]
        return [*program, case, json.dumps(dict(place.ports)), *places]

    return LiveSystem(
        "spark",
        "rows are seen in foreachBatch, before their batch is committed; the socket cannot be replayed",
        tuple(waited_for),
        "socket",
        lambda _: [],
        command,
    )


def flink(python: Path, *, committed: bool) -> LiveSystem:
    """Return Flink with one filter, whose results are visible at once or after a committed checkpoint."""
    program = [str(python), str(Path(__file__).with_name("flink_side.py"))]

    def command(place: Place) -> Sequence[str]:
        where = ["files", str(place.folder / "out")] if committed else ["socket", str(place.port_out)]
        return [*program, str(place.ports["bid"]), CONDITION, *where]

    return LiveSystem(
        "flink, committed" if committed else "flink, uncommitted",
        "rows are seen when a checkpoint, every 10 ms, has committed their file"
        if committed
        else "rows are seen as they are computed; a crash loses or repeats them",
        ("q",),
        "folder" if committed else "socket",
        lambda folder: [str(folder / "out")] if committed else [],
        command,
        # Flink must not find slicemill.
        environment={"PYTHONPATH": "", "JAVA_HOME": os.environ.get("JAVA_HOME", "")},
    )
