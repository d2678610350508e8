"""Partial results of new rows, level by level: each level adds one input.

A level stores for each partial result the index of its parent in the level before, and the row of a block
that it adds. A partial result therefore takes only a few numbers, and columns are fetched only if they are
needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.operators.join import placing
from slicemill.operators.join.arrays import Places, Times, Words
from slicemill.operators.join.block import Block
from slicemill.operators.join.pairs import raw, width

_RAW: dict[int, type[np.generic]] = {32: np.uint32, 64: np.uint64}


@dataclass(frozen=True, slots=True)
class AddedRows:
    """Rows of a block, with the positions of their partial results."""

    block: Block
    rows: Places
    places: Places


@dataclass(slots=True)
class Partials:
    """Partial results: parent, added row, time and query mask of each.

    Rows are added block by block; `begins` has the position of the first row of each of `blocks`.
    """

    input: int
    before: Partials | None
    parents: Places
    blocks: list[Block]
    begins: NDArray[np.int64]
    rows: Places
    times: Times
    words: Words
    _added: dict[int, list[AddedRows]] = field(default_factory=dict)
    _fetched: dict[tuple[int, str], pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def kept(self, keep: NDArray[np.bool_]) -> Partials:
        """Return the selected partial results."""
        counted = np.concatenate([[0], np.cumsum(keep)])
        begins = counted[self.begins]
        parents, rows, times = self.parents[keep], self.rows[keep], self.times[keep]
        words = np.ascontiguousarray(self.words[keep])
        return Partials(self.input, self.before, parents, self.blocks, begins, rows, times, words)

    def dropped(self) -> Partials:
        keep: NDArray[np.bool_] = np.any(self.words, axis=1)
        return self if keep.all() else self.kept(keep)

    def part(self, first: int, end: int) -> Partials:
        """Return a range of the partial results."""
        begins = np.clip(self.begins, first, end) - first
        one = slice(first, end)
        return Partials(
            self.input, self.before, self.parents[one], self.blocks, begins,
            self.rows[one], self.times[one], self.words[one],
        )  # fmt: skip

    def of(self, bit: NDArray[np.uint64]) -> Partials:
        """Return the partial results of the queries in a mask."""
        keep: NDArray[np.bool_] = np.any(self.words & bit, axis=1)
        return self if keep.all() else self.kept(keep)

    # -- fetching --------------------------------------------------------------------------------------

    def numbers(self, input_: int, name: str) -> NDArray[np.int64]:
        """Return a 64-bit integer column of one input's rows."""
        found: NDArray[np.int64] = raw(self.column(input_, name, pa.int64())).view(np.int64)
        return found

    def column(self, input_: int, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column of one input's rows; missing values do not matter."""
        known = (input_, name)
        if known not in self._fetched:
            self._fetched[known] = fetch(self.rows_of(input_), len(self), name, kind)
        return self._fetched[known]

    def rows_of(self, input_: int) -> list[AddedRows]:
        if input_ not in self._added:
            level, at = self, None
            while level.input != input_:
                at = level.parents if at is None else _gathered(level.parents, at)
                assert level.before is not None, "an input that is bound"
                level = level.before
            self._added[input_] = level._located(at)
        return self._added[input_]

    def _located(self, at: Places | None) -> list[AddedRows]:
        """Return the rows added at this level, for partial results with parents `at`."""
        rows = self.rows if at is None else _gathered(self.rows, at)
        if len(self.blocks) == 1:
            return [AddedRows(self.blocks[0], rows, np.arange(len(rows), dtype=np.int32))]
        if at is None:
            borders = [*self.begins.tolist(), len(self)]
            every = np.arange(len(self), dtype=np.int32)
            order, ends = every, borders[1:]
            begins = borders[:-1]
        else:
            of = (np.searchsorted(self.begins, at, side="right") - 1).astype(np.uint16)
            order = np.argsort(of, kind="stable").astype(np.int32)
            ends = np.cumsum(np.bincount(of, minlength=len(self.blocks))).tolist()
            begins = [0, *ends[:-1]]
        return [
            AddedRows(block, _gathered(rows, places), places)
            for block, begin, end in zip(self.blocks, begins, ends, strict=True)
            if len(places := np.ascontiguousarray(order[begin:end]))
        ]


def fetch(added: Sequence[AddedRows], rows: int, name: str, kind: pa.DataType) -> pa.Array:
    """Gather a column from blocks, each value at its position."""
    sources = [_values(part.block, name) for part in added]
    if width(kind) and all(values is not None and not values.null_count for values in sources):
        out = np.empty(rows, _RAW[width(kind)])
        for part, values in zip(added, sources, strict=True):
            placing.scatter(raw(values), part.rows, part.places, out)
        return pa.Array.from_buffers(kind, len(out), [None, pa.py_buffer(out)])
    parts = [
        pa.nulls(len(part.rows), kind) if values is None else values.take(pa.array(part.rows))
        for part, values in zip(added, sources, strict=True)
    ]
    if not parts:
        return pa.nulls(rows, kind)
    order = np.empty(rows, np.int32)
    order[np.concatenate([part.places for part in added])] = np.arange(rows)
    return pa.concat_arrays(parts).take(pa.array(order))


def _values(block: Block, name: str) -> pa.Array | None:
    """Return a column of a grouped block, which has one chunk per column."""
    return block.table.column(name).chunk(0) if name in block.table.column_names else None


def _gathered(values: Places, at: Places) -> Places:
    out = np.empty(len(at), np.uint32)
    placing.gather(values.view(np.uint32), at, out)
    return out.view(np.int32)


def gathered_times(values: Times, at: Places) -> Times:
    out = np.empty(len(at), np.uint64)
    placing.gather(values.view(np.uint64), at, out)
    return out.view(np.int64)


def new_rows(input_: int, block: Block) -> Partials:
    """Return the first level: the new rows of one input."""
    rows = np.arange(block.rows, dtype=np.int32)
    return Partials(input_, None, rows, [block], np.zeros(1, np.int64), rows, block.times, block.words)
