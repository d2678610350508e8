"""State of row operators: Python objects by key, with incremental snapshots.

Row operators store a Python object for each key: a group, a session, the rows of a join key. Encoding a
million objects takes 20 s, but a checkpoint must not block a worker for more than 100 ms. So a snapshot only
*freezes* the objects that have changed since the last snapshot. The thread that writes the checkpoint
encodes them while the worker continues:

    batch      change a, b       change b           remove a
    snapshot            freeze {a, b}       freeze {b}       freeze {a removed}
    pieces              [a b]               [a b][b]         [a b][b][a removed]    later rows supersede

If the worker is about to change a frozen object, the worker encodes the object first. A snapshot is a list
of immutable pieces, which are slices (`columns.pieces`). A piece is encoded and written once, so the cost
of a checkpoint depends on the number of objects that have changed. Short pieces are merged, as in a
log-structured merge tree. The thread that writes the checkpoint also merges the pieces.

Objects are grouped into parts, such as windows. The time to drop a part does not depend on its number of
objects.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from slicemill.codec.registry import register
from slicemill.codec.state import decode, encode
from slicemill.columns.pace import keep_pace
from slicemill.columns.pieces import Slice

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")

_COLUMNS = pa.schema(
    [
        ("number", pa.int64()),
        ("part", pa.int64()),
        ("state", pa.large_binary()),  # encoded key and object, NULL for a removed object
        ("buffers", pa.list_(pa.large_binary())),  # arrays and tables of the object, NULL for most objects
    ]
)
# Row of a snapshot table: number of an object, number of its part, encoded object, and its buffers.
_StoredRow: TypeAlias = tuple[int, int, bytes | None, list[bytes] | None]

_BATCH = 1_024
# Two pieces of a snapshot are merged if both are small, or if the older piece is less than twice as long.
# All pieces are merged if they have _MOST_ROWS times as many rows as there are objects.
_SMALL, _RATIO, _MOST_ROWS = 4_096, 2, 4
# The worker sleeps for this time while the other thread encodes an object that the worker needs.
_MOMENT_S = 50e-6
_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


class _Removed:
    """Marker that replaces the object of a removed key."""


_REMOVED = _Removed()


@dataclass(slots=True, eq=False)
class _Entry(Generic[V]):
    """Object with its key, its number and the number of its part (such as a window)."""

    number: int
    part: int
    key: Any
    value: V


@dataclass(slots=True, eq=False)
class _Piece:
    """Immutable table of a snapshot, with at most `rows` rows."""

    slice: Slice
    rows: int

    @staticmethod
    def computed(rows: int, compute: Callable[[], pa.Table]) -> _Piece:
        """Return a snapshot table that is computed when it is first read."""

        def table() -> pa.Table:
            found = compute()
            piece.rows = found.num_rows
            return found

        piece = _Piece(Slice(table, spills=True), rows)
        return piece


class _Frozen:
    """Objects of a snapshot whose encoding has not been completed.

    Two threads encode objects: the thread that writes the checkpoint, and the worker before it changes an
    object. The thread that pops an object from `_left` encodes it. Each thread sets its own busy field before
    it pops, so that the other thread waits for an object that is being encoded.
    """

    def __init__(
        self, changed: dict[int, _Entry[Any]], plain: Callable[[Any], Any], parts: frozenset[int]
    ) -> None:
        self._left = changed
        self._plain = plain
        self._parts = parts
        self._encoded: deque[_StoredRow] = deque()
        self._batches: list[pa.RecordBatch] = []
        self._busy: int | None = None  # number of the object that the writing thread is encoding
        self._worker_busy = False
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self.done = False

    def encode_now(self, number: int) -> None:
        """Encode an object in the worker, before the worker changes it."""
        self._worker_busy = True  # set before the pop from `_left`, because `table` reads the flag afterwards
        try:
            while (entry := self._left.pop(number, None)) is None:
                if self._busy != number:
                    return
                time.sleep(_MOMENT_S)
            self._encode(entry)
        except Exception as problem:  # the checkpoint fails, but the micro-batch continues
            self._failure = problem
        finally:
            self._worker_busy = False

    def table(self) -> pa.Table:
        """Encode all remaining objects, and return the table of encoded objects."""
        with self._lock:
            for number in list(self._left):
                self._busy = number  # set before the pop, because `encode_now` reads it afterwards
                try:
                    self._encode_left(number)
                finally:
                    self._busy = None
                if len(self._encoded) >= _BATCH:
                    self._add_batch()
                keep_pace()
            while self._worker_busy:  # the worker may be encoding the last object
                time.sleep(_MOMENT_S)
            if self._failure is not None:
                raise self._failure
            self._add_batch()
            self.done = True
            return pa.Table.from_batches(self._batches, _COLUMNS).combine_chunks()

    def _encode_left(self, number: int) -> None:
        """Encode an object unless the worker encoded it; on failure, retain it in `_left`."""
        entry = self._left.pop(number, None)
        if entry is not None:
            try:
                self._encode(entry)
            except Exception:
                self._left[number] = entry
                raise

    def _encode(self, entry: _Entry[Any]) -> None:
        if entry.part not in self._parts:  # the part of the object was dropped before the snapshot
            return
        if entry.value is _REMOVED:
            self._encoded.append((entry.number, entry.part, None, None))
            return
        made = encode((entry.key, self._plain(entry.value)), copied=False)
        buffers = [buffer.to_pybytes() for buffer in made.buffers()] if made.payloads else None
        self._encoded.append((entry.number, entry.part, _json(made.tree).encode(), buffers))

    def _add_batch(self) -> None:
        rows = [self._encoded.popleft() for _ in range(len(self._encoded))]
        if rows:
            columns = [
                pa.array(column, each.type)
                for column, each in zip(zip(*rows, strict=True), _COLUMNS, strict=True)
            ]
            self._batches.append(pa.RecordBatch.from_arrays(columns, schema=_COLUMNS))


class ObjectsByKey(Generic[K, V]):
    """Python objects by key, grouped into parts such as windows.

    `plain` converts an object to values that `codec` can store, and `made` converts them back. To change an
    object in place, call `change` in the same micro-batch first.
    """

    __slots__ = ("_begun", "_changed", "_frozen", "_known", "_made", "_parts", "_pieces", "_plain")

    def __init__(self, plain: Callable[[V], Any], made: Callable[[Any], V]) -> None:
        self._plain, self._made = plain, made
        # Number and entries of each part, with the entries by key.
        self._parts: dict[Any, tuple[int, dict[K, _Entry[V]]]] = {}
        self._begun = 0  # number that the next new entry or part gets
        self._known = 0  # number below which all entries are in a snapshot
        self._changed: dict[int, _Entry[Any]] = {}
        self._pieces: list[_Piece] = []
        self._frozen: list[_Frozen] = []

    def __len__(self) -> int:
        return sum(len(entries) for _, entries in self._parts.values())

    @property
    def parts(self) -> Sequence[Any]:
        """Return the parts in the order of their first objects."""
        return list(self._parts)

    def items(self, part: Hashable = None) -> Iterator[tuple[K, V]]:
        """Yield a part's keys and objects in insertion order, for reading only."""
        for key, entry in self._entries(part).items():
            yield key, entry.value

    def get(self, key: K, part: Hashable = None) -> V | None:
        """Return an object for reading only, or None."""
        entry = self._entries(part).get(key)
        return None if entry is None else entry.value

    def change(self, key: K, part: Hashable = None) -> V | None:
        """Return an object that the current micro-batch may change, or None."""
        entry = self._entries(part).get(key)
        if entry is None:
            return None
        if entry.number not in self._changed:
            for frozen in self._frozen:
                frozen.encode_now(entry.number)
            self._changed[entry.number] = entry
        return entry.value

    def put(self, key: K, value: V, part: Hashable = None) -> None:
        """Add an object, or replace the object of a key."""
        number, entries = self._parts.get(part) or self._begin(part)
        known = entries.get(key)
        entry = _Entry(self._next() if known is None else known.number, number, key, value)
        entries[key] = self._changed[entry.number] = entry

    def remove(self, key: K, part: Hashable = None) -> V:
        """Remove and return an object, which the current micro-batch may change."""
        value = self.change(key, part)
        if value is None:
            raise KeyError(key)
        number, entries = self._parts[part]
        entry = entries.pop(key)
        if entry.number < self._known:
            self._changed[entry.number] = _Entry(entry.number, number, None, _REMOVED)
        else:
            del self._changed[entry.number]
        return value

    def drop(self, part: Hashable) -> None:
        """Remove all objects of a part, such as a window that has ended."""
        self._parts.pop(part, None)

    def snapshot(self) -> dict[str, Any]:
        """Freeze the objects changed since the last snapshot; return the state to store."""
        numbers = frozenset(number for number, _ in self._parts.values())
        self._frozen = [frozen for frozen in self._frozen if not frozen.done]
        if self._changed:
            frozen = _Frozen(self._changed, self._plain, numbers)
            self._pieces.append(_Piece.computed(len(self._changed), frozen.table))
            self._frozen.append(frozen)
            self._changed, self._known = {}, self._begun
        self._tidy(numbers)
        return {
            "pieces": [piece.slice for piece in self._pieces],
            "parts": [(part, number) for part, (number, _) in self._parts.items()],
            "begun": self._begun,
        }

    @staticmethod
    def restored(stored: dict[str, Any]) -> ObjectsByKey[Any, Any]:
        """Load a snapshot, whose objects are unconverted plain values until `opened`."""
        found: ObjectsByKey[Any, Any] = ObjectsByKey(_same, _same)
        by_number: dict[int, dict[Any, _Entry[Any]]] = {}
        for part, number in stored["parts"]:
            by_number[number] = {}
            found._parts[part] = number, by_number[number]
        found._begun = found._known = stored["begun"]
        found._pieces = [_Piece(piece, piece.table.num_rows) for piece in stored["pieces"]]
        if stored["pieces"]:
            table = _merged([piece.table for piece in stored["pieces"]], frozenset(by_number), first=True)
            for batch in table.to_batches(_BATCH):
                for number, part, state, buffers in zip(*(one.to_pylist() for one in batch), strict=True):
                    kept = [pa.py_buffer(buffer) for buffer in buffers or ()]
                    key, value = decode(json.loads(state), kept)
                    by_number[part][key] = _Entry(number, part, key, value)
        return found

    def opened(self, plain: Callable[[T], Any], made: Callable[[Any], T]) -> ObjectsByKey[K, T]:
        """Convert the plain values of a restored snapshot to objects with `made`."""
        found: ObjectsByKey[K, T] = ObjectsByKey(plain, made)
        for part, (number, entries) in self._parts.items():
            opened = {
                key: _Entry(entry.number, number, key, made(self._plain(entry.value)))
                for key, entry in entries.items()
            }
            found._parts[part] = number, opened
            for entry in opened.values():
                if entry.number in self._changed:
                    found._changed[entry.number] = entry
        for number, removed in self._changed.items():
            if removed.value is _REMOVED:
                found._changed[number] = removed
        found._begun, found._known = self._begun, self._known
        found._pieces, found._frozen = list(self._pieces), list(self._frozen)
        return found

    def sample(self, count: int) -> list[Any]:
        """Return keys and plain values of at most `count` objects."""
        found: list[Any] = []
        for _, entries in self._parts.values():
            for entry in entries.values():
                if len(found) == count:
                    return found
                found.append((entry.key, self._plain(entry.value)))
        return found

    def _entries(self, part: Hashable) -> dict[K, _Entry[V]]:
        known = self._parts.get(part)
        return {} if known is None else known[1]

    def _begin(self, part: Hashable) -> tuple[int, dict[K, _Entry[V]]]:
        made: tuple[int, dict[K, _Entry[V]]] = self._next(), {}
        self._parts[part] = made
        return made

    def _next(self) -> int:
        self._begun += 1
        return self._begun - 1

    def _tidy(self, parts: frozenset[int]) -> None:
        """Merge short tables of the snapshot, to limit the number of tables."""
        pieces = self._pieces
        if sum(piece.rows for piece in pieces) > _MOST_ROWS * len(self) + _SMALL:
            self._merge(len(pieces), parts)
        while len(pieces) > 1 and _belong_together(*pieces[-2:]):
            self._merge(2, parts)

    def _merge(self, count: int, parts: frozenset[int]) -> None:
        """Replace the last `count` tables of the snapshot by one table."""
        merged = self._pieces[-count:]
        if count == 1:
            return
        first = count == len(self._pieces)

        def table() -> pa.Table:
            return _merged([piece.slice.table for piece in merged], parts, first=first)

        self._pieces[-count:] = [_Piece.computed(sum(piece.rows for piece in merged), table)]


def _belong_together(older: _Piece, newer: _Piece) -> bool:
    return older.rows < _RATIO * newer.rows or older.rows + newer.rows <= _SMALL


def _merged(tables: Sequence[pa.Table], parts: frozenset[int], *, first: bool) -> pa.Table:
    """Merge snapshot tables: return the latest row of each object in these parts.

    Rows are ordered by object number. A removed object's row only supersedes rows of earlier tables, so the
    table that is `first` in the snapshot omits it.
    """
    table = pa.concat_tables(tables)
    numbers = table.column("number").to_numpy()
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = ordered[1:] != ordered[:-1]
    kept = order[last]
    wanted = np.isin(table.column("part").to_numpy()[kept], list(parts))
    if first:
        wanted &= table.column("state").is_valid().to_numpy()[kept]
    return table.take(pa.array(kept[wanted])).combine_chunks()


def _same(value: Any) -> Any:
    return value


register("objects.by_key", 1, ObjectsByKey, ObjectsByKey.snapshot, ObjectsByKey.restored)
