"""Theorem: after a crash at any file operation, with a loss of power where `durable`, a reopened log has
either done the operation or not. It reads no orphan, and a sweep leaves only files that its manifest names.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slicemill.esl.types import INT, Column, Schema
from slicemill.storage import log_manifest
from slicemill.storage.files import LOCAL, FileSystem
from slicemill.storage.log import StreamLog
from storage.faulty_files import MODES, Crashed, CrashingFiles, MemoryFiles, crashes_of

SCHEMA = Schema((Column("n", INT),))
FOLDER = Path("/home/log")
WRITERS = ("ingest", "unit")
DICE = st.integers(0, 2**32).map(random.Random)
CRASHES = st.none() | st.tuples(st.integers(0, 30), st.sampled_from(MODES))

Rows = list[tuple[int, int]]  # timestamp, value


def table_of(rows: Rows) -> pa.Table:
    ts, values = [row[0] for row in rows], [row[1] for row in rows]
    return pa.table({"_ts": pa.array(ts, pa.int64()), "n": pa.array(values, pa.int32())})


@dataclass
class Model:
    """What a log should hold."""

    first: int = 0
    epochs: list[tuple[str, Rows]] = field(default_factory=list)
    writers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WRITERS, -1))
    frontier: int | None = None

    def append(self, writer: str, parts: list[Rows], enabling_ts: int | None) -> None:
        rows = sorted((row for part in parts for row in part), key=lambda row: row[0])
        self.writers[writer] += 1
        self.epochs.append((f"{writer}:{self.writers[writer]}", rows))
        reached = [self.frontier, enabling_ts, *(row[0] for row in rows)]
        self.frontier = max((ts for ts in reached if ts is not None), default=None)

    def truncate(self, number: int) -> None:
        first = min(max(number, self.first), self.first + len(self.epochs))
        del self.epochs[: first - self.first]
        self.first = first

    def matches(self, log: StreamLog) -> bool:
        stored = [
            (epoch.key, [(row["_ts"], row["n"]) for row in log.read(epoch.number).to_pylist()])
            for epoch in log.epochs()
        ]
        known = all(last < 0 or log.has(f"{writer}:{last}") for writer, last in self.writers.items())
        more = any(log.has(f"{writer}:{last + 1}") for writer, last in self.writers.items())
        return (
            (log.first, log.head, log.frontier)
            == (self.first, self.first + len(self.epochs) - 1, self.frontier)
            and stored == self.epochs
            and known
            and not more
        )


def files_match_manifest(files: FileSystem, log: StreamLog) -> bool:
    """Nothing but what the log's manifest names is left, and no manifest file is superfluous."""
    chunks = {chunk.path.removeprefix("chunks/") for epoch in log.epochs() for chunk in epoch.chunks}
    spans = log_manifest.list_spans(files, log.folder)
    names = {span.name for span in spans}
    return (
        set(files.names(log.folder / "chunks")) == chunks
        and set(files.names(log.folder / "epochs")) == names
        and set(files.names(log.folder)) <= {"chunks", "epochs", "schema.arrow", "base.json"}
        and log_manifest.redundant(spans, log.first) == []
    )


class LogMachine(RuleBasedStateMachine):
    """Appends, replays, truncations, sweeps and reopenings, any of which may die at any step."""

    durable = False

    def __init__(self) -> None:
        super().__init__()
        # Narrow merges, so that short runs have them at every level.
        self.widths = mock.patch.object(log_manifest, "MERGED_WIDTHS", (9, 3))
        self.widths.start()
        self.files = MemoryFiles()
        self.crashing = CrashingFiles(self.files)
        self.model = Model()
        self.value = 0

    @initialize(crash=CRASHES)
    def create(self, crash: tuple[int, str] | None) -> None:
        self.crashing.steps, self.crashing.mode = crash or (None, "")
        try:
            self.open()
        except Crashed:
            self.recover(random.Random(0))
        self.crashing.steps = None

    def open(self) -> None:
        self.log = StreamLog(FOLDER, SCHEMA, files=self.crashing, durable=self.durable)
        self.reader = StreamLog(FOLDER, files=self.files)

    def recover(self, dice: random.Random) -> None:
        if self.durable:
            self.files.lose_power(dice)
        self.crashing = CrashingFiles(self.files)
        self.open()

    def attempt(
        self,
        crash: tuple[int, str] | None,
        operation: Callable[[], object],
        change: Callable[[Model], object],
        dice: random.Random,
    ) -> None:
        after = copy.deepcopy(self.model)
        change(after)
        if crash is not None:
            self.crashing.steps, self.crashing.mode = crash
        try:
            operation()
        except Crashed:
            self.recover(dice)
            assert self.model.matches(self.log) or after.matches(self.log)
            self.model = after if after.matches(self.log) else self.model
        else:
            self.crashing.steps = None
            self.model = after

    @rule(
        crash=CRASHES,
        writer=st.sampled_from(WRITERS),
        parts=st.lists(st.lists(st.integers(0, 50), max_size=3).map(sorted), max_size=2),
        enabling_ts=st.none() | st.integers(0, 60),
        dice=DICE,
    )
    def append(
        self,
        crash: tuple[int, str] | None,
        writer: str,
        parts: list[list[int]],
        enabling_ts: int | None,
        dice: random.Random,
    ) -> None:
        numbered = []
        for part in parts:
            numbered.append([(ts, self.value + i) for i, ts in enumerate(part)])
            self.value += len(part)
        key = f"{writer}:{self.model.writers[writer] + 1}"
        self.attempt(
            crash,
            lambda: self.log.append(key, [self.log.write(table_of(p)) for p in numbered], 0, enabling_ts),
            lambda model: model.append(writer, numbered, enabling_ts),
            dice,
        )

    @rule(crash=CRASHES, back=st.integers(0, 3), dice=DICE)
    def replay(self, crash: tuple[int, str] | None, back: int, dice: random.Random) -> None:
        sequence = max(self.model.writers["ingest"] - back, -1)
        if sequence >= 0:
            again = table_of([(99, -1)])
            self.attempt(
                crash,
                lambda: self.log.append(f"ingest:{sequence}", [self.log.write(again)], 0),
                lambda model: None,
                dice,
            )

    @rule(crash=CRASHES, keep=st.integers(-1, 12), dice=DICE)
    def truncate(self, crash: tuple[int, str] | None, keep: int, dice: random.Random) -> None:
        number = self.log.head + 1 - keep
        self.attempt(
            crash, lambda: self.log.truncate_before(number), lambda model: model.truncate(number), dice
        )

    @rule(crash=CRASHES, dice=DICE)
    def sweep(self, crash: tuple[int, str] | None, dice: random.Random) -> None:
        self.attempt(crash, lambda: self.log.sweep(grace_us=0), lambda model: None, dice)

    @rule()
    def abandon_a_chunk(self) -> None:
        self.log.write(table_of([(1, -1)]))

    @rule()
    def reopen(self) -> None:
        self.open()

    @precondition(lambda self: self.durable)
    @rule(dice=DICE)
    def lose_power(self, dice: random.Random) -> None:
        self.recover(dice)

    @invariant()
    def the_log_is_what_it_should_be(self) -> None:
        if hasattr(self, "log"):
            assert self.model.matches(self.log)
            self.reader.refresh()
            assert self.model.matches(self.reader)

    def teardown(self) -> None:
        self.widths.stop()
        if hasattr(self, "log"):
            self.log.sweep(grace_us=0)
            assert files_match_manifest(self.files, self.log)
            assert self.model.matches(StreamLog(FOLDER, files=self.files))


class DurableLogMachine(LogMachine):
    """The same, where each crash is a loss of power."""

    durable = True


_SETTINGS = settings(max_examples=40, stateful_step_count=20)
TestLogSurvivesKills = LogMachine.TestCase
TestLogSurvivesKills.settings = _SETTINGS
TestLogSurvivesLossOfPower = DurableLogMachine.TestCase
TestLogSurvivesLossOfPower.settings = _SETTINGS


@pytest.mark.parametrize("place", ["local", "memory"])
@pytest.mark.parametrize("operation", ["append", "truncate", "sweep"])
def test_a_kill_at_every_step_leaves_the_log_before_or_after_the_operation(
    place: str, operation: str, tmp_path: Path
) -> None:
    operations = {
        "append": lambda log: log.append(f"ingest:{log.head + 1}", [log.write(table_of([(9, 9)]))], 0),
        "truncate": lambda log: log.truncate_before(log.head - 1),
        "sweep": lambda log: log.sweep(grace_us=0),
    }
    files: FileSystem = LOCAL if place == "local" else MemoryFiles()
    outcomes = set()
    with mock.patch.object(log_manifest, "MERGED_WIDTHS", (4, 2)):
        for attempt, crashing in enumerate(crashes_of(files)):
            folder = tmp_path / str(attempt)
            log = StreamLog(folder, SCHEMA, files=files)
            for number in range(3):
                log.append(f"ingest:{number}", [log.write(table_of([(number, number)]))], 0)
            log.write(table_of([(5, 5)]))
            before = log.epochs()
            log._files = crashing
            with suppress(Crashed):
                operations[operation](log)
            again = StreamLog(folder, files=files)
            after = again.epochs()
            outcomes.add(tuple(epoch.number for epoch in after))
            assert after[: len(before)] == before or after == before[-2:]
            assert [again.read(epoch.number)["n"].to_pylist() for epoch in after] == [
                [9 if epoch.number == 3 else epoch.number] for epoch in after
            ]
            again.sweep(grace_us=0)
            assert files_match_manifest(files, again)
    expected = {"append": {(0, 1, 2), (0, 1, 2, 3)}, "truncate": {(0, 1, 2), (1, 2)}, "sweep": {(0, 1, 2)}}
    assert outcomes == expected[operation]
