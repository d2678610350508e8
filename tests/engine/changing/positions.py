"""Queries over files, created at any moment: they give what one gives that was created at the start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from engine.changing.backfills import PAST
from engine.changing.catalogue import DECLARED, KINDS, RELATIONS, TABLES
from engine.changing.come_and_go import Event, Shown, Step, events, shown, staged, take
from slicemill.api.mill import Mill
from slicemill.catalog.catalog import AGAIN
from slicemill.testing import Clock, inline_pool, open_mill

EVENTS = 60
COLUMNS = {"s": ("k", "v", "ts"), "r": ("k", "w", "ts")}
# What is stamped on arrival has another time when it is read a second time.
STAMPED = ("stamped", "merged_mixed", "view_rows")
OF_FILES = [
    name
    for name in PAST
    if name not in STAMPED and " i" not in KINDS[name].select.replace(" in ", " ") and not KINDS[name].ad_hoc
]


def _declared() -> str:
    text = DECLARED.partition("-- Streams are read")[0]
    for stream, clause in (("s", "ORDER BY ts;"), ("r", "ORDER BY ts SKEW 1 SECOND;")):
        assert clause in text
        text = text.replace(clause, f"{clause[:-1]} USING json OPTIONS (path 'files/{stream}');", 1)
    return text


SCRIPT = _declared()


@dataclass
class Scene:
    """A mill over folders to which files are added; events are the same in every scene of a seed."""

    folder: Path
    seed: int
    subtasks: int = 1
    clock: Clock = field(default_factory=lambda: Clock(10**15))
    position: int = 0
    files: int = 0
    kinds: dict[str, str] = field(default_factory=dict)  # by query
    declared: list[str] = field(default_factory=list)
    states: set[str | None] = field(default_factory=set)  # that queries were seen in
    joined: bool = False  # no source was read a second time any more, after the last run

    def __post_init__(self) -> None:
        for stream in COLUMNS:
            (self.folder / "files" / stream).mkdir(parents=True)
        self.mill = self._started()

    def _started(self) -> Mill:
        mill = open_mill(
            home=self.folder / "home",
            folder=self.folder,
            pool=inline_pool(),
            clock=self.clock,
            subtasks=self.subtasks,
        )
        for name, rows in TABLES.items():
            mill.tables.set_rows(name, rows)
        mill.execute(SCRIPT + "".join(f"{text};" for text in self.declared))
        mill.open()
        return mill

    def create(self, name: str, kind: str) -> None:
        relations = [RELATIONS[one] for one in KINDS[kind].relations if RELATIONS[one] not in self.declared]
        for text in (*relations, KINDS[kind].create(name)):  # statement by statement
            self.mill.execute(text)
            self.declared.append(text)
        self.kinds[name] = kind

    def drop(self, name: str) -> None:
        if name in self.kinds:
            self.mill.execute(f"DROP QUERY {name}")
            self.declared.remove(KINDS[self.kinds.pop(name)].create(name))

    def write(self, count: int) -> None:
        """Add a file for each stretch of events of one stream."""
        new = events(self.seed, EVENTS)[self.position : self.position + count]
        self.position += len(new)
        for stream in COLUMNS:
            rows = [_line(event) for event in new if event.stream == stream]
            if rows:
                self.files += 1
                path = self.folder / "files" / stream / f"{self.files:04}.json"
                path.write_text("".join(rows))

    def run(self) -> None:
        """Read what is there, and let the tasks run."""
        self.clock.now += 1_000_000
        self.mill.running.read_all()
        self.mill.dispatcher.run_all()
        self.mill.retention.collect()
        self.states |= {self.mill.backfills.state_of(name) for name in self.kinds}
        self.joined = not self.read_twice

    def run_some(self) -> None:
        self.mill.running.read_all()
        self.mill.dispatcher.run_some()

    def restart(self, checkpoint: bool) -> None:
        self.mill.close(checkpoint=checkpoint)
        self.mill = self._started()

    def rows(self, name: str) -> Shown:
        given = self.mill.queries[name]
        assert given.error is None, (self.kinds[name], given.error)
        return shown((timed.ts, timed.row) for timed in given.timed_rows())

    @property
    def read_twice(self) -> list[str]:
        """Return the streams whose sources are read a second time by now."""
        return [name for name in self.mill.dispatcher.streams if AGAIN in name]

    def end(self) -> None:
        self.write(EVENTS)
        self.mill.drain()
        for name, kind in self.kinds.items():
            expected, rows = always(self.seed, kind), self.rows(name)
            assert rows == expected, (name, kind, rows - expected, expected - rows)

    def close(self) -> None:
        self.mill.close()


def _line(event: Event) -> str:
    *values, ts = event.row
    assert isinstance(ts, int)
    time = datetime.fromtimestamp(ts / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return json.dumps(dict(zip(COLUMNS[event.stream], (*values, time), strict=True))) + "\n"


@cache
def always(seed: int, kind: str) -> Shown:
    """What a query gives that is declared in one script with its streams, over all files."""
    with staged(lambda folder: Scene(folder, seed)) as scene:
        scene.create("alone", kind)
        scene.write(EVENTS)
        scene.mill.drain()
        return scene.rows("alone")


def play(steps: Sequence[Step], seed: int = 0, subtasks: int = 1) -> Scene:
    """Take the steps and compare at the end; return the scene, which is closed."""
    with staged(lambda folder: Scene(folder, seed, subtasks)) as scene:
        take(scene, steps)
        scene.end()
        return scene


def come_late(kind: str) -> None:
    """Create a query beside one of the same kind, through a crash and a restart, in several subtasks."""
    first: list[Step] = [("create", "l", kind), ("write", 20), ("run",), ("create", "p", kind), ("run_some",)]
    crash: list[Step] = [("restart", False), ("write", 5), ("run_some",), ("restart", True)]
    scene = play([*first, *crash, *([("run",), ("write", 8)] * 4)], seed=3, subtasks=2)
    assert scene.joined, "the stream is read once in the end"


@st.composite
def sequences(draw: st.DrawFn) -> list[Step]:
    """Queries are created and dropped at any moment, while files come and mills stop and crash."""
    names: list[str] = []
    steps: list[Step] = []
    for number in range(draw(st.integers(3, 9))):
        choice = draw(st.integers(0, 9))
        if choice <= 3 or number == 0:
            names.append(f"q{number}")
            steps.append(("create", names[-1], draw(st.sampled_from(OF_FILES))))
        elif choice == 4:
            steps.append(("restart", draw(st.booleans())))
        elif choice == 5:
            steps.append(("drop", draw(st.sampled_from(names))))
        elif choice <= 7:
            steps.append(("run",))
        else:
            steps.append(("run_some",))
        steps.append(("write", draw(st.integers(0, 15))))
    return steps
