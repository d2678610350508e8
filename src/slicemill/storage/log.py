"""StreamLog: the ordered, durable list of a stream's epochs; one for each source, derived stream and result.

    <folder>/schema.arrow               the columns; a log exists once this file does
    <folder>/chunks/<unique>.arrow      rows (slicemill.storage.chunk)
    <folder>/epochs/<start>-<end>.json  the manifest (slicemill.storage.log_manifest)
    <folder>/base.json                  where the log starts after truncation

**Appending** is one step: the link that names the epoch's manifest file. Chunks are written before it,
manifest files merged after it; a crash between leaves files that nobody reads and that `sweep` removes. The
link fails if the epoch exists, so that a second writer, there by mistake, is found out.

**Idempotence** is that of Kafka's producers: a key is a writer's name and a sequence number that only grows,
and the log remembers each writer's last one for good, also when its epochs are long freed. A counter that
starts over (a new checkpoint) must therefore come with a new name.

**Truncation** moves the start of the log first (base.json, one rename) and frees files after.

One process writes, many read; a reader calls `refresh` and sees a prefix of what is committed. Methods may be
called from several threads of one process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from slicemill.esl.types import Schema
from slicemill.storage.arrow_schema import from_arrow, to_arrow
from slicemill.storage.chunk import ChunkInfo, check_chunks, write_chunk
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
    write_whole,
)
from slicemill.storage.log_epoch import Epoch, LogError, encode_epochs, last_sequences, make_epoch, parse_key
from slicemill.storage.log_manifest import (
    BASE,
    EPOCHS,
    Base,
    Manifest,
    Span,
    encode_base,
    list_spans,
    load,
    merge_due,
    redundant,
)
from slicemill.storage.log_read import read_epoch

CHUNKS = "chunks"
SCHEMA = "schema.arrow"


class StreamLog:
    """Open a log, or create it if a schema is given; `durable` also outlives a loss of power."""

    def __init__(
        self,
        folder: Path,
        schema: Schema | None = None,
        *,
        files: FileSystem = LOCAL,
        durable: bool = False,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self.folder = folder
        self.columns = _open_schema(files, folder, schema, durable)
        self._files = files
        self._durable = durable
        self._clock = clock
        self._lock = threading.RLock()
        self._manifest = load(files, folder)

    @property
    def schema(self) -> Schema:
        return from_arrow(self.columns)

    @property
    def first(self) -> int:
        """The number of the first epoch that is still there, or would be."""
        return self._manifest.epochs.first

    @property
    def head(self) -> int:
        """The number of the last epoch; -1 before the first."""
        with self._lock:
            return self._manifest.epochs.end - 1

    @property
    def frontier(self) -> int | None:
        """The timestamp that the stream has reached, by its rows or by enabling timestamps."""
        with self._lock:
            last = self.epochs(after=self.head - 1)
            return last[0].frontier if last else self._manifest.base.frontier

    def epochs(self, after: int = -1) -> list[Epoch]:
        """The epochs that follow number `after` (a cursor: the last epoch read) and are not freed."""
        with self._lock:
            return self._manifest.epochs.since(after + 1)

    def epoch(self, number: int) -> Epoch:
        with self._lock:
            found = self._manifest.epochs.since(number, number + 1) if number >= self.first else []
            if not found:
                raise LogError(f"log {self.folder} has epochs {self.first} to {self.head}, not {number}")
            return found[0]

    def has(self, epoch_key: str) -> bool:
        """Has this key, or a later one of the same writer, been committed?"""
        writer, sequence = parse_key(epoch_key)
        return sequence <= self._manifest.writers.get(writer, -1)

    def read(self, number: int) -> pa.Table:
        """The rows of an epoch; see `read_epoch`, which does the same in another process."""
        return read_epoch(self.folder, self.columns, self.epoch(number), self._files)

    def write(self, table: pa.Table) -> ChunkInfo:
        """Write a chunk for a later `append`. Tasks elsewhere call `write_chunk(folder, CHUNKS, table)`."""
        return write_chunk(self.folder, CHUNKS, table, self._files, self._durable)

    def append(
        self,
        epoch_key: str,
        chunks: Sequence[ChunkInfo],
        arrival_us: int,
        enabling_ts: int | None = None,
        stamped_ts: int | None = None,
    ) -> Epoch | None:
        """Commit an epoch, or return None, changing nothing, if its key is committed already (a replay)."""
        with self._lock:
            if self.has(epoch_key):
                return None
            epoch = make_epoch(
                self.head + 1, epoch_key, chunks, arrival_us, enabling_ts, stamped_ts, self.frontier
            )
            self.prepare(chunks)
            span = Span(epoch.number, epoch.number + 1)
            try:
                create_whole(self._files, self._path(span), encode_epochs([epoch]), self._durable)
            except FileExistsError:
                self._catch_up(epoch_key)
                return None
            self._manifest.epochs.add([epoch])
            self._manifest.writers.update([parse_key(epoch_key)])
            self._merge()
            return epoch

    def prepare(self, chunks: Sequence[ChunkInfo]) -> None:
        """Make sure that chunks are there, and stay; part of `append`, and of a unit's commit before it."""
        check_chunks(self.folder, chunks, self._files)
        if self._durable and chunks:
            self._files.sync(self.folder / CHUNKS)

    def _catch_up(self, epoch_key: str) -> None:
        # An append that raised after its link (a full disk, say) is committed although we did not count it.
        self.refresh()
        if not self.has(epoch_key):
            raise LogError(
                f"log {self.folder} has another writer; stop it, or append again to go on after it"
            )

    def refresh(self) -> None:
        """See what other processes have committed and freed since."""
        with self._lock:
            known, fresh = self._manifest, load(self._files, self.folder, self.head + 1)
            known.epochs.drop_before(fresh.base.first)
            known.epochs.add(fresh.epochs.since(known.epochs.end))
            self._manifest = Manifest(fresh.base, known.epochs, last_sequences(known.writers, fresh.writers))

    def truncate_before(self, number: int) -> int:
        """Free all epochs before a number; returns the bytes of the chunks that are gone."""
        with self._lock:
            first = min(number, self.head + 1)
            if first <= self.first:
                return 0
            known = self._manifest
            base = Base(first, self.frontier, dict(known.writers))
            write_whole(self._files, self.folder / BASE, encode_base(base), self._durable)
            freed = known.epochs.since(0, first)
            known.epochs.drop_before(first)
            self._manifest = Manifest(base, known.epochs, known.writers)
            for path in (chunk.path for epoch in freed for chunk in epoch.chunks):
                self._files.remove(self.folder / path)
            self._remove_redundant()
            return sum(epoch.bytes for epoch in freed)

    def sweep(self, grace_us: int = GRACE_US) -> list[str]:
        """Remove the files that no manifest of this log names, and say which.

        Younger files than `grace_us` stay, since their writer may still be at work. Where units write to the
        log, call `slicemill.storage.gc.sweep`: it first appends what their manifests have promised.
        """
        with self._lock:
            # List before refreshing: what another process commits in between is then known to be named.
            listed = [
                path for part in (CHUNKS, EPOCHS, "") for path in list_files(self._files, self.folder, part)
            ]
            self.refresh()
            named = {chunk.path for epoch in self.epochs() for chunk in epoch.chunks}
            orphans = [path for path in listed if is_orphan(path, CHUNKS, named)]
            removed = remove_old(self._files, self.folder, orphans, self._clock() - grace_us)
            self._remove_redundant()
            return removed

    def _path(self, span: Span) -> Path:
        return self.folder / EPOCHS / span.name

    def _merge(self) -> None:
        span = merge_due(self.head + 1)
        if span is not None:
            epochs = self.epochs(after=span.start - 1)
            write_whole(self._files, self._path(span), encode_epochs(epochs), self._durable)
            self._remove_redundant()

    def _remove_redundant(self) -> None:
        for span in redundant(list_spans(self._files, self.folder), self.first):
            self._files.remove(self._path(span))


def _open_schema(files: FileSystem, folder: Path, schema: Schema | None, durable: bool) -> pa.Schema:
    wanted = None if schema is None else to_arrow(schema)
    try:
        found = pa.ipc.read_schema(pa.py_buffer(files.read(folder / SCHEMA)))
    except FileNotFoundError:
        if wanted is None:
            raise LogError(f"there is no log in {folder}; declare its stream first") from None
        for part in (CHUNKS, EPOCHS):
            ensure_folder(files, folder / part, durable)
        write_whole(files, folder / SCHEMA, wanted.serialize().to_pybytes(), durable)
        return wanted
    if wanted is not None and not wanted.equals(found, check_metadata=True):
        raise LogError(f"log {folder} holds {from_arrow(found)}, not {schema}; drop the stream or rename it")
    return found
