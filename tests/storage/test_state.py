"""Cursors, state and results move together: a run happens once, whatever dies, or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.esl.types import INT, Column, Schema
from slicemill.storage import gc
from slicemill.storage.chunk import ChunkError, ChunkInfo
from slicemill.storage.files import LOCAL, FileSystem
from slicemill.storage.log import StreamLog
from slicemill.storage.state import (
    Output,
    SliceInfo,
    StateError,
    StateStore,
    UnitVersion,
    commit_run,
    decode_version,
    encode_version,
    roll_forward,
)
from storage.faulty_files import MODES, Crashed, CrashingFiles, MemoryFiles, crashes_of

SCHEMA = Schema((Column("n", INT),))
UNIT = Path("/home/unit")


def table_of(*values: int) -> pa.Table:
    return pa.table({"_ts": pa.array(values, pa.int64()), "n": pa.array(values, pa.int32())})


@dataclass
class Pipeline:
    """A unit that reads `input`, keeps the sum of what it read, and writes each value and each sum."""

    input: StreamLog
    results: dict[str, StreamLog]
    store: StateStore

    def feed(self) -> None:
        value = self.input.head + 1
        self.input.append(f"ingest:{value}", [self.input.write(table_of(value))], value)

    def run(self) -> None:
        unit = self.store.load(self.store.head)
        unread = self.input.epochs(after=unit.cursors["input"])[:1]
        if not unread:
            return
        values = [value for epoch in unread for value in self.input.read(epoch.number)["n"].to_pylist()]
        total = sum(values) + sum(self.store.read(unit.slices[0])["n"].to_pylist() if unit.slices else [])
        part = SliceInfo("sum", 0, self.store.write(table_of(total)))
        outputs = {
            "values": Output((self.results["values"].write(table_of(*values)),), 0),
            "sums": Output((self.results["sums"].write(table_of(total)),), 0, enabling_ts=total),
        }
        commit_run(self.store, UnitVersion({"input": unread[-1].number}, (part,), outputs), self.results)

    def collect(self) -> None:
        gc.collect({"input": self.input}, gc.committed_cursors([self.store]), now_us=10**18)

    def sweep(self) -> None:
        gc.sweep({"input": self.input, **self.results}, [self.store], grace_us=0)

    def check(self) -> None:
        """After rolling forward, everything says that the same epochs were read, each once."""
        roll_forward(self.store, self.results)
        unit = self.store.load(self.store.head)
        read = unit.cursors["input"] + 1
        assert contents(self.results["values"]) == list(range(read))
        assert contents(self.results["sums"]) == [sum(range(n + 1)) for n in range(read)]
        if unit.slices:
            assert self.store.read(unit.slices[0])["n"].to_pylist() == [sum(range(read))]


def contents(log: StreamLog) -> list[int]:
    return [value for epoch in log.epochs() for value in log.read(epoch.number)["n"].to_pylist()]


def pipeline(files: FileSystem, home: Path, durable: bool = False) -> Pipeline:
    def log(name: str) -> StreamLog:
        return StreamLog(home / name, SCHEMA, files=files, durable=durable)

    store = StateStore(home / "unit", files=files, durable=durable)
    if store.latest() is None:
        store.commit(0, UnitVersion({"input": -1}))
    return Pipeline(log("input"), {name: log(name) for name in ("values", "sums")}, store)


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_kill_at_every_step_of_a_run_commits_it_whole_or_not_at_all(place: str, tmp_path: Path) -> None:
    files: FileSystem = LOCAL if place == "local" else MemoryFiles()
    cursors = set()
    for attempt, crashing in enumerate(crashes_of(files)):
        home = tmp_path / str(attempt)
        plain = pipeline(files, home)
        for _ in range(2):
            plain.feed()
            plain.run()
        plain.feed()
        steps, crashing.steps = crashing.steps, None
        dying = pipeline(crashing, home)
        crashing.steps = steps
        with suppress(Crashed):
            dying.run()
        again = pipeline(files, home)
        again.check()
        cursors.add(again.store.load(again.store.head).cursors["input"])
        again.run()
        again.check()
        assert contents(again.results["values"]) == list(range(3))
        again.sweep()
        assert len(files.names(home / "unit" / "slices")) == 2
        assert len(files.names(home / "unit" / "versions")) == 2
        assert len(files.names(home / "values" / "chunks")) == 3
    assert cursors == {1, 2}


ACTIONS: dict[str, Callable[[Pipeline], None]] = {
    "feed": Pipeline.feed,
    "run": Pipeline.run,
    "collect": Pipeline.collect,
    "sweep": Pipeline.sweep,
}
CRASHES = st.none() | st.tuples(st.integers(0, 60), st.sampled_from(MODES), st.integers(0, 2**32))


@given(
    st.lists(st.tuples(st.sampled_from(["feed", "run", "run", *ACTIONS]), CRASHES), max_size=25),
    st.booleans(),
)
@settings(max_examples=120)
def test_results_are_exactly_once_whatever_dies_and_when(
    actions: list[tuple[str, tuple[int, str, int] | None]], durable: bool
) -> None:
    files = MemoryFiles()
    home = Path("/home")
    current = pipeline(files, home, durable)
    for name, crash in actions:
        if crash is None:
            ACTIONS[name](current)
        else:
            crashing = CrashingFiles(files)
            dying = pipeline(crashing, home, durable)
            crashing.steps, crashing.mode, seed = crash
            with suppress(Crashed):
                ACTIONS[name](dying)
            if durable:
                files.lose_power(random.Random(seed))
            current = pipeline(files, home, durable)
        current.check()
    while current.input.epochs(after=current.store.load(current.store.head).cursors["input"]):
        current.run()
    current.check()
    assert contents(current.results["values"]) == list(range(current.input.head + 1))


def test_results_are_invisible_until_their_run_is_committed() -> None:
    files = MemoryFiles()
    for crashing in crashes_of(files):
        plain = pipeline(files, Path("/home"))
        plain.feed()
        before = plain.store.head - 1
        dying = pipeline(CrashingFiles(files), Path("/home"))
        for log in dying.results.values():
            log._files = crashing
        dying.store._files = crashing
        with suppress(Crashed):
            dying.run()
        committed = StateStore(UNIT, files=files).head > before + 1
        seen = [StreamLog(Path("/home") / name, files=files).head for name in ("values", "sums")]
        assert committed or seen == [before, before]
        roll_forward(pipeline(files, Path("/home")).store, pipeline(files, Path("/home")).results)


def test_a_version_follows_the_one_before_it_and_only_once() -> None:
    files = MemoryFiles()
    one, other = StateStore(UNIT, files=files), StateStore(UNIT, files=files)
    assert one.identity == other.identity
    one.commit(0, UnitVersion({"bids": 3}))
    with pytest.raises(StateError, match="is at version 0"):
        other.commit(0, UnitVersion({"bids": 4}))
    with pytest.raises(StateError, match="so 2 cannot follow"):
        one.commit(2, UnitVersion({"bids": 4}))
    assert StateStore(UNIT, files=files).latest() == UnitVersion({"bids": 3})


def test_of_two_drivers_that_commit_at_the_same_moment_one_succeeds() -> None:
    files = MemoryFiles()
    slow = StateStore(UNIT, files=files)
    encode, fast = slow._slices, StateStore(UNIT, files=files)

    def overtaken() -> set[ChunkInfo]:
        if fast.head < 0:
            fast.commit(0, UnitVersion({"bids": 1}))
        return encode()

    slow._slices = overtaken  # type: ignore[method-assign]
    with pytest.raises(StateError, match="another driver"):
        slow.commit(0, UnitVersion({"bids": 2}))
    assert StateStore(UNIT, files=files).load(0).cursors == {"bids": 1}


def test_the_last_versions_stay_with_their_slices_and_the_rest_goes() -> None:
    files = MemoryFiles()
    store = StateStore(UNIT, files=files, keep=3)
    slices = [SliceInfo("join", bucket, store.write(table_of(bucket))) for bucket in range(8)]
    for version in range(7):
        store.commit(version, UnitVersion({}, tuple(slices[version : version + 2])))
    again = StateStore(UNIT, files=files, keep=3)
    for version in (4, 5, 6):
        assert again.load(version).slices == tuple(slices[version : version + 2])
        assert again.read(slices[version])["n"].to_pylist() == [version]
    with pytest.raises(StateError, match=r"keeps versions \[4, 5, 6\], not 3"):
        again.load(3)
    assert len(files.names(UNIT / "slices")) == 4


def test_a_version_without_its_slices_is_refused() -> None:
    store = StateStore(UNIT, files=MemoryFiles())
    with pytest.raises(ChunkError, match="gone"):
        store.commit(0, UnitVersion({}, (SliceInfo("join", 0, ChunkInfo("slices/x.arrow", 1, 1, 1, 1)),)))
    assert store.latest() is None


def test_results_for_a_log_that_is_not_open_are_refused_before_the_commit() -> None:
    store = StateStore(UNIT, files=MemoryFiles())
    with pytest.raises(StateError, match="result log r is not open"):
        commit_run(store, UnitVersion({}, (), {"r": Output((), 0)}), {})
    assert store.head == -1


def test_a_promise_is_kept_before_the_next_commit_replaces_it() -> None:
    files = MemoryFiles()
    logs = {"r": StreamLog(Path("/home/r"), SCHEMA, files=files)}
    store = StateStore(UNIT, files=files, keep=1)
    first, second = (Output((logs["r"].write(table_of(value)),), 0) for value in (1, 2))
    store.commit(0, UnitVersion({}, (), {"r": first}))
    commit_run(store, UnitVersion({}, (), {"r": second}), logs)
    assert contents(logs["r"]) == [1, 2]


def test_a_unit_that_starts_over_is_not_taken_for_a_replay() -> None:
    files = MemoryFiles()
    logs = {"r": StreamLog(Path("/home/r"), SCHEMA, files=files)}
    for folder in ("first", "second"):
        commit_run(
            StateStore(Path("/home") / folder, files=files), UnitVersion({}, (), {"r": Output((), 0)}), logs
        )
    assert logs["r"].head == 1


def test_a_damaged_version_says_which_file_and_why() -> None:
    files = MemoryFiles()
    StateStore(UNIT, files=files).commit(0, UnitVersion({}))
    files.write(UNIT / "versions" / "000000000000.json", b"")
    with pytest.raises(StateError, match=r"000000000000\.json is damaged.*durable=True"):
        StateStore(UNIT, files=files)


CHUNKS = st.builds(ChunkInfo, st.text(), st.integers(0), st.integers(0), st.none() | st.integers(), st.none())
TIMES = st.none() | st.integers(-(2**63), 2**63 - 1)


@given(
    st.builds(
        UnitVersion,
        st.dictionaries(st.text(), st.integers(-1)),
        st.lists(st.builds(SliceInfo, st.text(), st.integers(0), CHUNKS), max_size=3).map(tuple),
        st.dictionaries(
            st.text(),
            st.builds(Output, st.lists(CHUNKS, max_size=2).map(tuple), st.integers(), TIMES, TIMES),
            max_size=2,
        ),
        st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text(), max_size=3),
    )
)
@settings(max_examples=60)
def test_a_version_comes_back_as_it_was_written(unit: UnitVersion) -> None:
    assert decode_version(encode_version(unit)) == unit
