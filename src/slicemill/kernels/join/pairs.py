"""Pairs that a run has found, with which queries want them: columns are fetched, and conditions tested.

Pairs are held in the order in which they were found: slice by slice, and by key, so that what is fetched lies
together. `order` has their places in the order of results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.kernels.join import probe
from slicemill.kernels.join.block import DATA, KEY, TIME, Block
from slicemill.kernels.join.probe import Places, Times, Words


@dataclass(frozen=True, slots=True)
class Probing:
    """New rows of a side: grouped, with their arrival, their place in the order of all new rows, and how many
    rows of the other side came before them."""

    block: Block
    arrivals: Times
    ranks: Places
    seen: Times


@dataclass(frozen=True, slots=True)
class Found:
    """Pairs of new rows of a `side` with rows of one block of the other side."""

    side: int
    block: Block
    probes: Places
    rows: Places


@dataclass(slots=True)
class Pairs:
    new: Sequence[Probing]
    found: list[Found]
    wanted: Words
    order: Places
    _fetched: dict[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.wanted)

    def moments(self) -> pa.Array:
        """The timestamps of results: those of the rows that probed."""
        return self._of_probes("now", lambda probing: probing.block.times)

    def arrivals(self) -> pa.Array:
        return self._of_probes("arrival", lambda probing: probing.arrivals)

    def column(self, side: int, name: str, kind: pa.DataType) -> pa.Array:
        """A column of one side; a slice that lacks it has no row whose value matters."""
        known = f"{side}{name}"
        if known not in self._fetched:
            parts = [self._part(found, side, name, kind) for found in self.found]
            self._fetched[known] = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
        return self._fetched[known]

    def _part(self, found: Found, side: int, name: str, kind: pa.DataType) -> pa.Array:
        block, places = found.block, found.rows
        if found.side == side:
            block, places = self.new[side].block, found.probes
        if name not in block.table.column_names:
            return pa.nulls(len(places), kind)
        # A grouped block has one piece a column.
        return pc.take(block.table.column(name).chunk(0), pa.array(places), boundscheck=False)

    def _of_probes(self, name: str, of: Callable[[Probing], Times]) -> pa.Array:
        if name not in self._fetched:
            parts = [of(self.new[found.side])[found.probes] for found in self.found]
            self._fetched[name] = pa.array(np.concatenate(parts) if parts else np.zeros(0, np.int64))
        return self._fetched[name]

    def times(self, side: int) -> pa.Array:
        return self.column(side, TIME, pa.int64())

    def data(self, side: int, column: str, kind: pa.DataType) -> pa.Array:
        return self.column(side, DATA + column, kind)

    def compare_keys(self, kinds: Sequence[pa.DataType]) -> None:
        """Hashes are equal: nobody wants a pair whose keys are not."""
        equal: NDArray[np.bool_] | None = None
        for place, kind in enumerate(kinds):
            left, right = (self.column(side, f"{KEY}{place}", kind) for side in (0, 1))
            same = pc.equal(left, right).to_numpy(zero_copy_only=False).astype(np.bool_)
            equal = same if equal is None else equal & same
        if equal is not None and not equal.all():
            self.wanted[~equal] = 0

    def dropped(self) -> Pairs:
        """The pairs that somebody wants still."""
        keep = self.wanted.any(axis=1)
        if keep.all():
            return self
        found: list[Found] = []
        start = 0
        for part in self.found:
            mine = keep[start : start + len(part.probes)]
            found.append(Found(part.side, part.block, part.probes[mine], part.rows[mine]))
            start += len(part.probes)
        renumbered = (np.cumsum(keep) - 1).astype(np.int32)
        order = renumbered[self.order[keep[self.order]]]
        return Pairs(self.new, found, np.ascontiguousarray(self.wanted[keep]), order)

    def places(self, bit: int) -> Places:
        """The places of one query's pairs, in the order of results."""
        return probe.having(self.order, self.wanted, bit // 64, np.uint64(1 << bit % 64))
