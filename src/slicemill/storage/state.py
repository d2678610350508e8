"""StateStore: a unit's state as a sequence of versions, and the commit that makes a run's effects one.

    <folder>/unit.json              the unit's identity, made once: its name as a writer of result logs
    <folder>/slices/<unique>.arrow  state slices (slicemill.storage.chunk)
    <folder>/versions/<n>.json      the manifest of version n

A version says which epochs the unit has read (cursors), which slices are its state, and which result chunks
that run has made (outputs). The protocol of a run, where everything before step 2 is invisible:

1. Tasks write new slices to the unit's folder and result chunks to the result logs' folders.
2. The driver creates the manifest of version n + 1: one link, the commit. It fails unless version n is the
   last one, so of two drivers that ran the same unit one succeeds.
3. The driver appends to each result log what the manifest says, under the key `<identity>:<n + 1>`.

The manifest is thus a write-ahead record for the logs. A crash before step 2 leaves orphans and the unit runs
again from version n. A crash after it leaves a promise, which `roll_forward` keeps when the unit is next
opened, and again before the next commit; the log ignores keys that it has. So cursors, state and results move
together, though they lie in different folders. Readers of two result logs may see one a moment before the
other, but never a result of a run that is not committed.

Because chunks of a promise are named by no log yet, roll forward before a log is swept (`gc.sweep` does); and
before a log is dropped, commit a version that adds nothing to it. The last `keep` versions stay; slices that
none of them names are removed. A unit's version 0 holds the cursors it starts from, no more: it keeps its
input from being freed before the first run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.storage.chunk import (
    ChunkInfo,
    check_chunks,
    decode_chunk,
    encode_chunk,
    open_chunk,
    write_chunk,
)
from slicemill.storage.files import (
    GRACE_US,
    LOCAL,
    FileSystem,
    create_whole,
    ensure_folder,
    is_orphan,
    list_files,
    now_us,
    remove_old,
    unique_name,
    write_whole,
)
from slicemill.storage.log import StreamLog

SLICES = "slices"
VERSIONS = "versions"
IDENTITY = "unit.json"
_SUFFIX = ".json"


class StateError(SlicemillError):
    """A unit's state that cannot be loaded, or a commit that came second."""


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """A piece of an operator's state, in one bucket."""

    operator: str
    bucket: int
    chunk: ChunkInfo


@dataclass(frozen=True, slots=True)
class Output:
    """What a run appends to one result log: the arguments of `StreamLog.append`."""

    chunks: tuple[ChunkInfo, ...]
    arrival_us: int
    enabling_ts: int | None = None
    stamped_ts: int | None = None


@dataclass(frozen=True, slots=True)
class UnitVersion:
    cursors: Mapping[str, int]  # log → the last epoch read
    slices: tuple[SliceInfo, ...] = ()
    outputs: Mapping[str, Output] = field(default_factory=dict)  # result log → what this run adds to it
    extra: Mapping[str, object] = field(default_factory=dict)  # anything that JSON holds


def encode_version(unit: UnitVersion) -> bytes:
    content = {
        "cursors": dict(unit.cursors),
        "slices": [[part.operator, part.bucket, encode_chunk(part.chunk)] for part in unit.slices],
        "outputs": {log: _encode_output(output) for log, output in unit.outputs.items()},
        "extra": dict(unit.extra),
    }
    return json.dumps(content, separators=(",", ":")).encode()


def _encode_output(output: Output) -> list[object]:
    chunks = [encode_chunk(chunk) for chunk in output.chunks]
    return [chunks, output.arrival_us, output.enabling_ts, output.stamped_ts]


def decode_version(data: bytes) -> UnitVersion:
    content = json.loads(data)
    return UnitVersion(
        content["cursors"],
        tuple(
            SliceInfo(operator, bucket, decode_chunk(chunk)) for operator, bucket, chunk in content["slices"]
        ),
        {
            log: Output(tuple(decode_chunk(chunk) for chunk in chunks), *times)
            for log, (chunks, *times) in content["outputs"].items()
        },
        content["extra"],
    )


def commit_run(store: StateStore, unit: UnitVersion, logs: Mapping[str, StreamLog]) -> int:
    """Commit what a run did: state, cursors and results together. Returns the new version."""
    roll_forward(store, logs)
    for name, output in unit.outputs.items():
        _log(logs, name).prepare(output.chunks)
    version = store.head + 1
    store.commit(version, unit)
    roll_forward(store, logs)
    return version


def roll_forward(store: StateStore, logs: Mapping[str, StreamLog]) -> None:
    """Append the last version's outputs to the result logs that do not have them yet."""
    unit = store.latest()
    if unit is None:
        return
    for name, output in unit.outputs.items():
        key = f"{store.identity}:{store.head}"
        _log(logs, name).append(key, output.chunks, output.arrival_us, output.enabling_ts, output.stamped_ts)


def _log(logs: Mapping[str, StreamLog], name: str) -> StreamLog:
    if name not in logs:
        raise StateError(f"result log {name} is not open; open it before the unit, drop it after the unit")
    return logs[name]


class StateStore:
    """Open a unit's versions, or start them; `durable` also outlives a loss of power."""

    def __init__(
        self,
        folder: Path,
        *,
        keep: int = 2,
        files: FileSystem = LOCAL,
        durable: bool = False,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self.folder = folder
        self._keep = max(keep, 1)
        self._files = files
        self._durable = durable
        self._clock = clock
        self.identity = self._open_identity()
        self._versions = self._read_all()

    @property
    def head(self) -> int:
        """The number of the last version; -1 before the first."""
        return max(self._versions, default=-1)

    def latest(self) -> UnitVersion | None:
        return self._versions.get(self.head)

    def load(self, version: int) -> UnitVersion:
        if version not in self._versions:
            raise StateError(f"unit {self.folder} keeps versions {sorted(self._versions)}, not {version}")
        return self._versions[version]

    def write(self, table: pa.Table) -> ChunkInfo:
        """Write a slice for a later commit. Tasks elsewhere call `write_chunk(folder, SLICES, table)`."""
        return write_chunk(self.folder, SLICES, table, self._files, self._durable)

    def read(self, part: SliceInfo) -> pa.Table:
        """A slice's rows, mapped."""
        return open_chunk(self.folder, part.chunk, self._files)

    def commit(self, version: int, unit: UnitVersion) -> None:
        """Make `version` the last one, if the one before it still is; see `commit_run` for its outputs."""
        found = max(self._numbers(), default=-1)
        if not found == self.head == version - 1:
            raise self._conflict(version, found)
        added = {part.chunk for part in unit.slices} - self._slices()
        check_chunks(self.folder, added, self._files)
        if self._durable and added:
            self._files.sync(self.folder / SLICES)
        try:
            create_whole(self._files, self._path(version), encode_version(unit), self._durable)
        except FileExistsError:
            raise self._conflict(version, version) from None
        self._versions[version] = unit
        self._retire()

    def sweep(self, grace_us: int = GRACE_US) -> list[str]:
        """Remove the slices that no version names and that nobody can still be writing, and say which."""
        parts = (SLICES, VERSIONS, "")
        listed = [path for part in parts for path in list_files(self._files, self.folder, part)]
        self._versions = self._read_all()
        self._retire()
        named = {chunk.path for chunk in self._slices()}
        orphans = [path for path in listed if is_orphan(path, SLICES, named)]
        return remove_old(self._files, self.folder, orphans, self._clock() - grace_us)

    def _slices(self) -> set[ChunkInfo]:
        return {part.chunk for unit in self._versions.values() for part in unit.slices}

    def _retire(self) -> None:
        old = sorted(self._versions)[: -self._keep]
        before = self._slices()
        for number in old:
            self._files.remove(self._path(number))
            del self._versions[number]
        for chunk in before - self._slices() if old else ():
            self._files.remove(self.folder / chunk.path)

    def _conflict(self, version: int, found: int) -> StateError:
        return StateError(
            f"unit {self.folder} is at version {found}, so {version} cannot follow; another driver may run it"
        )

    def _open_identity(self) -> str:
        path = self.folder / IDENTITY
        try:
            return str(json.loads(self._files.read(path))["identity"])
        except FileNotFoundError:
            for part in (SLICES, VERSIONS):
                ensure_folder(self._files, self.folder / part, self._durable)
            identity = unique_name()
            write_whole(self._files, path, json.dumps({"identity": identity}).encode(), self._durable)
            return identity

    def _numbers(self) -> list[int]:
        names = self._files.names(self.folder / VERSIONS)
        return sorted(int(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX))

    def _path(self, version: int) -> Path:
        return self.folder / VERSIONS / f"{version:012d}{_SUFFIX}"

    def _read_all(self) -> dict[int, UnitVersion]:
        found = {}
        for number in self._numbers():
            path = self._path(number)
            try:
                found[number] = decode_version(self._files.read(path))
            except FileNotFoundError:
                continue  # retired by the unit's driver since it was listed
            except ValueError as problem:
                raise StateError(
                    f"{path} is damaged ({problem}); to outlive a loss of power a unit needs durable=True"
                ) from problem
        return found
