"""Which queries reach a tuple of which age: their places in masks, and tables of bits by age (S17, S49).

The ends of all windows on one side cut ages into slices, time into [w_0, w_1), [w_1, w_2) … and ranks, for
windows that count rows, likewise. A tuple in a slice is reached by the queries whose window does not end
before it.

Where a column says when a row leaves, a pair is wanted while the partner's timestamp is before that time. As
time passes it, the row is stored for others alone: the bits of these queries are taken from its mask (S19).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.keys import whole
from slicemill.esl.types.query import ExpiryColumn, FrameUnit, Window
from slicemill.operators.join.arrays import Places, Times, Words
from slicemill.operators.join.block import DATA, Block
from slicemill.operators.join.spec import JoinMember
from slicemill.scalar.vectors import numbers, validity
from slicemill.storage.codec import stored_as
from slicemill.time import BEGINNING, END

WORD_BITS = 64
FOREVER = 2**63 - 1
_ALL_WHOLE: Mapping[str, float] = {}


@stored_as("join.seats", version=1)
@dataclass(frozen=True, slots=True)
class QueryBits:
    """Every query has a bit in the masks for as long as it is there; one that changes is a new query."""

    bits: Mapping[str, int]
    members: Mapping[str, JoinMember]

    @property
    def words(self) -> int:
        return 1 + max(self.bits.values(), default=0) // WORD_BITS

    def mask(self, names: Sequence[str]) -> NDArray[np.uint64]:
        words = np.zeros(self.words, np.uint64)
        for name in names:
            words[self.bits[name] // WORD_BITS] |= np.uint64(1 << self.bits[name] % WORD_BITS)
        return words

    def taken_by(self, members: Sequence[JoinMember]) -> QueryBits:
        """The bits after some queries have come and gone: those that stay keep theirs."""
        bits = {m.name: self.bits[m.name] for m in members if _same(self.members.get(m.name), m)}
        free = (bit for bit in range(len(members) + len(bits)) if bit not in set(bits.values()))
        for member in members:
            if member.name not in bits:
                bits[member.name] = next(free)
        return QueryBits(bits, {member.name: member for member in members})

    def without(self, names: Collection[str]) -> QueryBits:
        """The bits when these queries have gone."""
        return QueryBits(
            {name: bit for name, bit in self.bits.items() if name not in names},
            {name: member for name, member in self.members.items() if name not in names},
        )

    def stayed(self, before: QueryBits) -> list[str]:
        """The queries that were there before, as they are now."""
        return [name for name, member in self.members.items() if _same(before.members.get(name), member)]


def _same(before: JoinMember | None, now: JoinMember) -> bool:
    """Is it that query? What it reads of its rows may be less, or a column that its stream has got since and
    nobody looks at; who reads more of them comes anew (`plan.members.serves`)."""
    return before is not None and replace(before, columns=now.columns) == now


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back queries reach on one side. `longest_us` and `most_rows` are -1 where no query has such."""

    ends_us: Times
    bits_us: Words
    longest_us: int
    ends_rows: Times
    bits_rows: Words
    most_rows: int
    # By query, those that reach furthest first: its window in time or in rows (the other is -1), its bit.
    names: tuple[str, ...]
    windows_us: Times
    windows_rows: Times
    places: Places
    bits: NDArray[np.uint64]
    windows: Mapping[str, tuple[int, int]]

    @property
    def counts(self) -> bool:
        """Does some query count rows?"""
        return self.most_rows >= 0

    @property
    def longest_s(self) -> float | None:
        """The longest window in seconds; None if one never ends or counts rows."""
        return None if self.counts or self.longest_us == FOREVER else self.longest_us / 1_000_000


def reach_of(seats: QueryBits, side: int, shares: Mapping[str, float] = _ALL_WHOLE) -> Reach:
    """Of windows of which all is reached, or a share, for some queries."""
    windows = {name: member.windows[side] for name, member in seats.members.items()}
    extents = {name: _extent(window) for name, window in windows.items()}
    for name, share in shares.items():
        if name in extents and extents[name] != FOREVER:
            extents[name] = round(extents[name] * share)
    in_time = {name: extents[name] for name, window in windows.items() if not counts_rows(window)}
    in_rows = {name: extents[name] for name, window in windows.items() if counts_rows(window)}
    ends_us, bits_us = _table(in_time, seats)
    ends_rows, bits_rows = _table(in_rows, seats)
    names = sorted(windows, key=lambda name: (name in in_rows, in_time.get(name, 0)), reverse=True)
    bits = [seats.bits[name] for name in names]
    return Reach(
        ends_us,
        bits_us,
        max(in_time.values(), default=-1),
        ends_rows,
        bits_rows,
        max(in_rows.values(), default=-1),
        tuple(names),
        np.array([in_time.get(name, -1) for name in names], np.int64),
        np.array([in_rows.get(name, -1) for name in names], np.int64),
        np.array([bit // WORD_BITS for bit in bits], np.int32),
        np.array([1 << bit % WORD_BITS for bit in bits], np.uint64),
        {name: (in_time.get(name, -1), in_rows.get(name, -1)) for name in names},
    )


def counts_rows(window: Window) -> bool:
    return window.frame is FrameUnit.ROWS and window.extent is not None


def _extent(window: Window) -> int:
    return FOREVER if window.extent is None else window.extent


def _table(windows: Mapping[str, int], seats: QueryBits) -> tuple[Times, Words]:
    """The ends of windows, rising, and for each slice of ages who reaches it; beyond the last end nobody."""
    ends = sorted(set(windows.values()))
    bits = [seats.mask([name for name, end in windows.items() if end >= slice_end]) for slice_end in ends]
    return np.array(ends, np.int64), np.stack([*bits, seats.mask([])])


# -- rows that leave when a column of theirs says so -------------------------------------------------------


@dataclass(frozen=True)
class SideExpiry:
    """The queries of a side whose rows expire: by what, and their names."""

    queries: Mapping[ExpiryColumn, tuple[str, ...]]
    masks: Mapping[ExpiryColumn, NDArray[np.uint64]]

    def __bool__(self) -> bool:
        return bool(self.queries)

    def by_query(self, block: Block) -> dict[str, Times]:
        """When each row leaves, for the queries whose rows do."""
        return {name: ends for expiry, ends in self._ends(block) for name in self.queries[expiry]}

    def unexpired(self, block: Block, words: Words, now: int) -> Words:
        """Masks without the queries for which a row has left by now."""
        for expiry, ends in self._ends(block):
            over = ends <= now
            if over.any():
                words = np.array(words)
                words[over] &= ~self.masks[expiry]
        return words

    def _ends(self, block: Block) -> Iterator[tuple[ExpiryColumn, Times]]:
        """A block that lacks a column has no row for those who go by it.

        A row that has expired when it comes is there for a moment: it may come out without a partner.
        """
        for expiry in self.queries:
            if DATA + expiry.column in block.table.column_names:
                ends = ends_of(block.table.column(DATA + expiry.column), expiry)
                yield expiry, np.maximum(ends, block.times + 1)


def expiry_of_side(seats: QueryBits, side: int) -> SideExpiry:
    queries: dict[ExpiryColumn, tuple[str, ...]] = {}
    for name, member in seats.members.items():
        expires = member.windows[side].expires
        if expires is not None:
            queries[expires] = (*queries.get(expires, ()), name)
    return SideExpiry(queries, {expiry: seats.mask(names) for expiry, names in queries.items()})


def ends_of(column: pa.Array | pa.ChunkedArray, expiry: ExpiryColumn) -> Times:
    """The times of a column and so much later; NULL is before all time. They never overflow."""
    array = whole(column)
    valid = validity(array)
    ends: Times = numbers(array).astype(np.int64, copy=False)
    if expiry.after_us > 0:
        ends = np.minimum(ends, END - expiry.after_us) + expiry.after_us
    elif expiry.after_us < 0:
        ends = np.maximum(ends, BEGINNING - expiry.after_us) + expiry.after_us
    return ends if valid is None else np.where(valid, ends, BEGINNING)
