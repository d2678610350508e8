"""Epochs, and the list of them that a log keeps in memory.

A manifest file has a header line, {"writers": …}, and one line of JSON per epoch. Opening a log splits the
files into lines and parses the headers only; a line is parsed when somebody asks for its epoch. Consumers
stay near the head, so a log of 100 000 epochs opens in the time it takes to read its manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from slicemill.errors import SlicemillError
from slicemill.storage.chunk import ChunkInfo, decode_chunk, encode_chunk


class LogError(SlicemillError):
    """A log that cannot be opened, read or appended to."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One committed append: what one ingest batch, or one run of a unit, added to a log."""

    number: int
    key: str
    chunks: tuple[ChunkInfo, ...]
    rows: int
    bytes: int
    min_ts: int | None  # None: no rows
    max_ts: int | None
    arrival_us: int
    enabling_ts: int | None  # None: only the rows say how far time has come
    stamped_ts: int | None  # the timestamp of all rows, where chunks do not store one
    frontier: int | None  # the greatest timestamp and enabling timestamp in the log up to here


_FIELDS = tuple(field.name for field in fields(Epoch))


def parse_key(key: str) -> tuple[str, int]:
    """The writer and the sequence number of an epoch key.

    >>> parse_key("ingest:17")
    ('ingest', 17)
    """
    writer, _, sequence = key.rpartition(":")
    if not writer or not (sequence.isascii() and sequence.isdigit()):
        raise LogError(f"epoch key {key!r} must be a writer's name and a growing number, as in 'ingest:17'")
    return writer, int(sequence)


def last_sequences(*known: Mapping[str, int]) -> dict[str, int]:
    """Each writer's last sequence number, from what several sources know."""
    merged: dict[str, int] = {}
    for source in known:
        for writer, sequence in source.items():
            merged[writer] = max(sequence, merged.get(writer, -1))
    return merged


def latest(*timestamps: int | None) -> int | None:
    return max((ts for ts in timestamps if ts is not None), default=None)


def make_epoch(
    number: int,
    key: str,
    chunks: Sequence[ChunkInfo],
    arrival_us: int,
    enabling_ts: int | None,
    stamped_ts: int | None,
    frontier: int | None,
) -> Epoch:
    """An epoch with its totals; `frontier` is the log's before it."""
    filled = tuple(chunk for chunk in chunks if chunk.rows)
    if any((chunk.min_ts is None) != (stamped_ts is not None) for chunk in filled):
        raise LogError(f"epoch {key}: give stamped_ts if, and only if, its chunks store no _ts")
    stamp = stamped_ts if filled else None
    min_ts = min((chunk.min_ts for chunk in filled if chunk.min_ts is not None), default=stamp)
    max_ts = latest(stamp, *(chunk.max_ts for chunk in filled))
    rows, size = sum(chunk.rows for chunk in chunks), sum(chunk.bytes for chunk in chunks)
    reached = latest(frontier, max_ts, enabling_ts)
    return Epoch(
        number, key, tuple(chunks), rows, size, min_ts, max_ts, arrival_us, enabling_ts, stamped_ts, reached
    )


def encode_epochs(epochs: Iterable[Epoch]) -> bytes:
    """The content of a manifest file."""
    lines = [_encode(epoch) for epoch in epochs]
    writers = last_sequences(*(dict([parse_key(epoch.key)]) for epoch in epochs))
    return b"\n".join([_dump({"writers": writers}), *lines])


def _encode(epoch: Epoch) -> bytes:
    entry = {name: getattr(epoch, name) for name in _FIELDS}
    return _dump({**entry, "chunks": [encode_chunk(chunk) for chunk in epoch.chunks]})


def _dump(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def split_epochs(data: bytes) -> tuple[dict[str, int], list[bytes]]:
    """A manifest file's writers, and its epochs' lines."""
    header, *lines = data.split(b"\n")
    return json.loads(header)["writers"], lines


def decode_epoch(line: bytes) -> Epoch:
    try:
        entry = json.loads(line)
    except ValueError as problem:
        raise LogError(f"an epoch in the manifest is damaged ({problem}): {line[:80]!r}") from problem
    return Epoch(**{**entry, "chunks": tuple(decode_chunk(chunk) for chunk in entry["chunks"])})


class EpochList:
    """The epochs from number `first` on, each parsed when it is first asked for."""

    __slots__ = ("_items", "first")

    def __init__(self, first: int, lines: Iterable[bytes]) -> None:
        self.first = first
        self._items: list[bytes | Epoch] = list(lines)

    @property
    def end(self) -> int:
        return self.first + len(self._items)

    def since(self, number: int, end: int | None = None) -> list[Epoch]:
        """The epochs from a number on, up to but not including `end`."""
        stop = self.end if end is None else end
        positions = range(max(number - self.first, 0), min(stop, self.end) - self.first)
        return [self._parsed(position) for position in positions]

    def _parsed(self, position: int) -> Epoch:
        item = self._items[position]
        if isinstance(item, bytes):
            item = self._items[position] = decode_epoch(item)
        return item

    def add(self, items: Iterable[bytes | Epoch]) -> None:
        self._items.extend(items)

    def drop_before(self, number: int) -> None:
        del self._items[: max(number - self.first, 0)]
        self.first = max(number, self.first)
