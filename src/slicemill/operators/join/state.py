"""State of a join: mask bits of the queries, waiting rows, state slices and statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.codec.registry import register, stored_as
from slicemill.columns.pieces import Slice
from slicemill.kernels.arrays import Int64s
from slicemill.operators.alignment import borders, due_in_turn
from slicemill.operators.join import probe
from slicemill.operators.join.block import (
    BLOCK_ARRIVAL,
    BLOCK_SEQ,
    BLOCK_TS,
    DATA,
    FIRST,
    FOREVER,
    MASK,
    NUMBER,
    PENDING,
    TIME,
    Block,
    QueryBits,
    WindowReach,
    column_numbers,
    conform_table,
    expiry_of,
    group_by_hash,
    mask_words,
    open_block,
    reach_of,
)
from slicemill.operators.join.probe import Words
from slicemill.operators.join.slices.workload import Statistics
from slicemill.operators.join.spec import SIDES, JoinMember, SharedJoin, stream_ranks
from slicemill.operators.join.statistics import Cuts, MeasuredStage, Measures, SliceContent, name_of
from slicemill.shedding.accuracy import AccuracyReport
from slicemill.time import BEGINNING, END


class StoredSlice:
    """State slice of a join input, with statistics that can be read without loading its rows."""

    def __init__(self, slice_: Slice, known: dict[str, Any]) -> None:
        self.slice = slice_
        self.rows: int = known["rows"]
        self.earliest: int = known["earliest"]
        self.latest: int = known["latest"]
        self.last_number: int = known["last_number"]
        self.live: NDArray[np.uint64] = known["live"]
        # number of rows that each query selects, by name of the query
        self.wanted: dict[str, int] = known["wanted"]
        # number of rows for which a query has the longest window of all queries that select the row
        self.last: dict[str, int] = known["last"]
        pending: NDArray[np.uint64] | None = known["pending"]
        self.pending = None if pending is None else np.require(pending, requirements="W")
        # last time at which a row of the slice expires, by name of a query that names an expiry column
        self.ends: dict[str, int] = known["ends"]
        # time at which half of the rows have left all windows, if a query names an expiry column
        self.half_over: int | None = known["half_over"]
        self._block: Block | None = None

    def plain(self) -> dict[str, Any]:
        """Return the fields to store: all fields except the block of rows, which is loaded on access."""
        return {name: value for name, value in vars(self).items() if name != "_block"}

    def block(self, words: int) -> Block:
        if self._block is None or self._block.words.shape[1] != words:
            self._block = replace(open_block(self.slice.table, words), pending=self.pending)
        return self._block

    def stay_pending(self, allowed: NDArray[np.uint64]) -> None:
        """Keep the marks of unmatched rows only for the queries in the mask `allowed`."""
        if self.pending is not None:
            words = np.zeros((self.rows, len(allowed)), np.uint64)
            kept = min(words.shape[1], self.pending.shape[1])
            words[:, :kept] = self.pending[:, :kept] & allowed[:kept]
            self.pending, self._block = words, None


@stored_as("join.side", version=2, upgrade={1: lambda old: {**old, "lone": None}})
@dataclass(slots=True)
class SideState:
    """State of one input of a join: its waiting rows and its state slices.

    `seen` counts the rows of this side's stream that are consumed. `moments` are the timestamps of the rows
    that are not consumed yet. Both are maintained only if a window counts rows.
    """

    waiting: list[Slice | pa.Table] = field(default_factory=list)
    # number of rows in the first table of waiting rows that have been joined already
    taken: int = 0
    slices: list[StoredSlice] = field(default_factory=list)
    # ages in microseconds at which expired rows are evicted, or None if the ages are not planned yet
    cuts_us: tuple[int, ...] | None = None
    seen: int = 0
    moments: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    # rows with a NULL join key in time order, which outer joins emit as unmatched rows
    lone: pa.Table | None = None

    def has_numbers(self) -> bool:
        """Return True if the state slices of this input store the sequence numbers of rows."""
        return bool(self.slices) and BLOCK_SEQ in self.slices[-1].slice.table.column_names

    def held(self) -> list[SliceContent]:
        found = [SliceContent("", s.slice, s.rows, s.earliest, s.latest, s.wanted) for s in self.slices]
        for number, waiting in enumerate(self.waiting):
            stored = waiting if isinstance(waiting, Slice) else None
            times = column_numbers(table_of(waiting), BLOCK_TS)[0 if number else self.taken :]
            found.append(SliceContent(", waiting", stored, len(times), int(times[0]), int(times[-1]), {}))
        return found


def _by_input(old: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a stored join state of version 1, which existed only for joins of two streams."""
    return {**old, "sides": dict(zip(SIDES, old["sides"], strict=True)), "late": {}}


@stored_as("join", version=2, stored_names={"query_bits": "seats"}, upgrade={1: _by_input})
# Older versions of slicemill stored the state of joins of three or more streams as `multijoin`.
@stored_as(
    "multijoin",
    version=3,
    stored_names={"query_bits": "seats"},
    upgrade={1: lambda old: {"late": {}, "sheds": {}, **old}, 2: dict},
)
@dataclass(slots=True)
class JoinState:
    """State of a shared join, which executes the joins of several queries.

    `sides` has the rows of each input, by name. `late` has rows that are stored but have not probed for some
    queries yet, by line (`lines_of`) and input. `sheds` has the reports of queries with load shedding.
    """

    query_bits: QueryBits = field(default_factory=lambda: QueryBits({}, {}))
    sides: dict[str, SideState] = field(default_factory=dict)
    late: dict[str, dict[str, SideState]] = field(default_factory=dict)
    measures: Measures = field(default_factory=Measures)
    sheds: dict[str, AccuracyReport] = field(default_factory=dict)

    def held(self) -> list[SliceContent]:
        """Describe the state slices of all inputs, oldest first, and the waiting rows, for monitoring."""
        held = sorted(self.sides.items())
        held += [(name, side) for line in self.late.values() for name, side in sorted(line.items())]
        return [replace(part, part=name_of(name) + part.part) for name, side in held for part in side.held()]

    def statistics(self) -> Statistics | None:
        """Return the measured statistics of the join, for the planner's cost formulas."""
        stored = {name: sum(one.rows for one in side.slices) for name, side in self.sides.items()}
        return self.measures.statistics(stored)

    def cuts(self) -> list[Cuts]:
        """Return the planned slice borders of each input, with current statistics.

        Joins of three or more streams have no planned slice borders. Their slices are rewritten when enough
        of their rows have expired.
        """
        found: list[Cuts] = []
        for name, side in self.sides.items():
            if side.cuts_us is not None:
                cuts = self.measures.cuts(name, reach_of(self.query_bits, name))
                used = tuple(cut / 1_000_000 for cut in side.cuts_us)
                found += [] if cuts is None else [replace(cuts, used=used)]
        return found


register(
    "join.stored",
    3,
    StoredSlice,
    StoredSlice.plain,
    lambda plain: StoredSlice(plain["slice"], plain),
    upgrade={
        1: lambda old: {**old, "pending": None},
        2: lambda old: {**old, "ends": {}, "half_over": None},
    },
)


def table_of(held: Slice | pa.Table) -> pa.Table:
    return held.table if isinstance(held, Slice) else held


# The state of one join input has waiting rows and state slices.
#
# Waiting rows have not been joined yet, because an earlier row of another input may still arrive.
# State slices have rows that were joined already, in time order; new rows of other inputs probe the slices.
#
# The new rows of a micro-batch become a state slice, and small slices are merged as they age.
# Each row is thus rewritten only a few times, and few slices have to be probed, as in an LSM tree.
#
# A stored row has expired when it has left the windows of all queries that select the row.
# When a state slice is written, its expired rows are evicted.
# A state slice is rewritten when enough of its rows have expired (S19).
# The ages at which a rewrite pays off are planned from statistics (`slices.cuts.cheapest_cuts`).


# A merged slice covers at most 1/8 of the longest window, so that expired slices can be dropped whole.
_SLICES_PER_WINDOW = 8

# A slice is rewritten if more than 1/4 of its rows have expired, unless slice borders have been planned.
_REWRITE_SHARE = 4

# A state slice with fewer rows has no file of its own, and is not checked for a rewrite.
_SMALL_ROWS = 4096


@dataclass(frozen=True, slots=True)
class RowTakeover:
    """New query that takes over stored rows from an older query.

    `holds` evaluates the selection of the new query. `by` is the mask of the older query, with the bit that
    it had when the rows were stored.
    """

    name: str
    by: NDArray[np.uint64]
    holds: Callable[[pa.Table], NDArray[np.bool_]]


class JoinSide:
    """Operations on the state of one join input, for the current queries of the join."""

    def __init__(
        self,
        state: SideState,
        query_bits: QueryBits,
        input_: str,
        schema: pa.Schema,
        writing: MeasuredStage | None = None,
        asked: bool = False,
        judged: bool = False,
    ) -> None:
        """Open the state of one join input.

        `asked` is True if a query needs the sequence numbers of stored rows. `judged` is True if a query
        tracks which rows have found a match.
        """
        self.numbered = NUMBER in schema.names
        self.state = state
        self.reach: WindowReach = reach_of(query_bits, input_)
        # schema of the tables of waiting rows
        self.schema = schema
        left_out = (BLOCK_ARRIVAL,) if asked else (BLOCK_ARRIVAL, BLOCK_SEQ)
        stored = [f.with_name(TIME) if f.name == BLOCK_TS else f for f in schema if f.name not in left_out]
        beside = [
            pa.field(f"{PENDING}{word}", pa.uint64()) for word in range(query_bits.words if judged else 0)
        ]
        self._slice_schema = pa.schema([*stored, *beside])
        self._query_bits = query_bits
        self.expiry = expiry_of(query_bits, input_)
        self._writing = writing or MeasuredStage()
        self.everybody = query_bits.mask(self.reach.names)

    def change(self, stayed: list[str], served: Sequence[RowTakeover] = ()) -> None:
        """Update the masks of stored rows after queries were added or removed.

        Queries in `stayed` still see all their rows. Queries in `served` take over rows of other queries.
        """
        allowed, words = self._query_bits.mask(stayed), self._query_bits.words
        state = self.state
        for index, held in enumerate(state.waiting):
            table = conform_table(table_of(held), self.schema)
            masks = mask_words(table, words) & allowed
            self._share(served, table_of(held), None, table, masks)
            table = replace_masks(table, masks)
            state.waiting[index] = Slice(table) if isinstance(held, Slice) else table
        if state.lone is not None:
            lone = conform_table(state.lone, self.schema)
            state.lone = replace_masks(lone, mask_words(lone, words) & allowed)
        for index, stored in enumerate(state.slices):
            live = stored.live
            stored.live = resize_mask(live, words) & allowed
            stored.stay_pending(allowed)
            block = stored.block(words)
            if served:
                table = conform_table(block.whole_table, self._slice_schema)
                masks = block.words & stored.live
                self._share(served, block.table, live, table, masks)
                table = replace_masks(table, masks).append_column(FIRST, pa.array(block.first))
                state.slices[index] = self.stored(open_block(table, words))
            else:
                stored.wanted, stored.last = self._counted(block, stored.live)
        state.cuts_us = None
        if not self.numbered:
            state.seen, state.moments = 0, np.zeros(0, np.int64)

    def _share(
        self,
        served: Sequence[RowTakeover],
        before: pa.Table,
        live: NDArray[np.uint64] | None,
        table: pa.Table,
        masks: Words,
    ) -> None:
        """Set the mask bits of new queries in the stored rows that they take over from older queries.

        If `live` is given, rows are taken over only from queries that `live` contains.
        """
        plain = table.rename_columns([name.removeprefix(DATA) for name in table.column_names])
        for one in served:
            bits = one.by if live is None else one.by & resize_mask(live, len(one.by))
            theirs = (mask_words(before, len(bits)) & bits).any(axis=1)
            masks[theirs & one.holds(plain)] |= self._query_bits.mask([one.name])

    def numbers_for(self, moments: Int64s) -> Int64s:
        """Return consecutive row numbers for arriving rows of the stream, given their timestamps."""
        begun = self.state.seen + len(self.state.moments)
        self.state.moments = np.concatenate([self.state.moments, moments])
        return np.arange(begun, begun + len(moments))

    # -- waiting rows ----------------------------------------------------------------------------------

    def arrive(self, table: pa.Table) -> None:
        """Append arriving rows to the waiting rows. Rows arrive in time order."""
        if table.num_rows:
            self.state.waiting.append(table)

    def ready(self, below: int) -> pa.Table:
        """Remove and return the waiting rows whose timestamp is before `below`."""
        state = self.state
        found: list[pa.Table] = []
        while state.waiting:
            table = table_of(state.waiting[0]).slice(state.taken)
            times = column_numbers(table, BLOCK_TS)
            count = len(times) if below == FOREVER else int(np.searchsorted(times, below))
            if count:
                found.append(table.slice(0, count))
            if count < len(times):
                state.taken += count
                break
            state.waiting.pop(0)
            state.taken = 0
        self._store_waiting()
        whole = pa.concat_tables(found) if found else self.schema.empty_table()
        return whole.combine_chunks()

    def _store_waiting(self) -> None:
        """Convert large tables of waiting rows to slices, which checkpoints write only once."""
        state = self.state
        if state.waiting and state.taken:
            first = table_of(state.waiting[0])
            if first.num_rows - state.taken < _SMALL_ROWS:
                # A copy of the remaining rows lets the old table be freed, with the rows already joined.
                state.waiting[0] = first.take(pa.array(np.arange(state.taken, first.num_rows)))
                state.taken = 0
        for index, table in enumerate(state.waiting):
            if not isinstance(table, Slice) and table.num_rows >= _SMALL_ROWS:
                state.waiting[index] = Slice(table)

    def next_ts(self) -> int | None:
        """Return the timestamp of the first row that waits to be joined, or None if no row waits."""
        if not self.state.waiting:
            return None
        return int(table_of(self.state.waiting[0]).column(BLOCK_TS)[self.state.taken].as_py())

    def last_ts(self) -> int | None:
        """Return the timestamp of the last row that waits to be joined, or None if no row waits."""
        return (
            int(table_of(self.state.waiting[-1]).column(BLOCK_TS)[-1].as_py()) if self.state.waiting else None
        )

    def moments_below(self, below: int) -> Int64s:
        """Return the timestamps before `below` of the stream's rows that are not processed yet.

        The result is empty if no window counts rows.
        """
        moments = self.state.moments
        return moments if below == FOREVER else moments[: np.searchsorted(moments, below)]

    def count_consumed(self, moments: Int64s) -> None:
        """Add processed rows to the row count of the stream.

        Rows with a NULL key count too.
        """
        self.state.seen += len(moments)
        self.state.moments = self.state.moments[len(moments) :]

    # -- slices ----------------------------------------------------------------------------------------

    def blocks(self, earliest_probe: int) -> list[tuple[StoredSlice, Block]]:
        """Return the state slices in which a new row may find matches, oldest first.

        `earliest_probe` is the timestamp of the first new row.
        """
        words = self._query_bits.words
        return [
            (stored, stored.block(words))
            for stored in self.state.slices
            if stored.rows and self._can_reach(stored, earliest_probe, self.state.seen)
        ]

    def pending_from(self, latest: int) -> list[StoredSlice]:
        """Return the state slices that may have unmatched rows with timestamps up to `latest`."""
        return [one for one in self.state.slices if one.pending is not None and one.earliest <= latest]

    def store_null_keys(self, lone: pa.Table | None) -> None:
        """Store rows with a NULL join key, which outer joins emit as unmatched rows."""
        if lone is not None:
            known = [] if self.state.lone is None else [self.state.lone]
            self.state.lone = pa.concat_tables([*known, lone]).combine_chunks()

    def add(self, block: Block, now: int) -> None:
        """Store new rows as a state slice, and drop, merge or rewrite older slices.

        New rows that have already left all windows are not stored.
        """
        state = self.state
        if block.rows and not self._alive(block, self.everybody, now).all():
            words = self._query_bits.words
            block, _ = group_by_hash(self._kept(block, self.everybody, now).combine_chunks(), words)
        if block.rows:
            state.slices.append(self.stored(block))
        state.slices = [s for s in state.slices if self._can_reach(s, now, state.seen)]
        if (first := self._first_to_merge()) < len(state.slices) - 1:
            state.slices[first:] = self._written(state.slices[first:], now)
        written: list[StoredSlice] = []
        for stored in state.slices:
            wasted = stored.rows >= _SMALL_ROWS and self._is_wasted(stored, now)
            written += self._written([stored], now) if wasted else [stored]
        state.slices = written

    def _is_wasted(self, stored: StoredSlice, now: int) -> bool:
        """Return True if enough rows of a state slice have expired for a rewrite to pay off."""
        # number of rows that only removed queries have selected
        unwanted = stored.rows - sum(stored.last.values())
        over = {name: rows for name, rows in stored.last.items() if not self._reaches(name, stored, now)}
        if stored.half_over is not None and now >= stored.half_over:
            return True
        cuts = self.state.cuts_us
        if cuts is None:
            return (unwanted + sum(over.values())) * _REWRITE_SHARE > stored.rows
        passed = max((cut for cut in cuts if now - stored.latest >= cut), default=-1)
        at_a_cut = any(self.reach.windows[name][0] <= passed for name in over)
        return at_a_cut or unwanted * _REWRITE_SHARE > stored.rows

    def count_by_query(self, block: Block, rows: int) -> tuple[dict[str, int], dict[str, int]]:
        """Count the rows that each query selects, among the first `rows` rows of a block.

        Returns two counts by query: the selected rows, and the selected rows for which the query has the
        longest window.
        """
        return self._counted(replace(block, words=block.words[:rows]), self.everybody)

    def _first_to_merge(self) -> int:
        """Return the index of the first state slice to merge.

        All later slices are merged too. An older slice is merged if it has at most twice the rows of all
        later slices together. A merge may make the next older slice due. All slices that are due are merged
        in one write.
        """
        slices, longest = self.state.slices, self.reach.longest_us
        bounded = not self.reach.counts and longest != FOREVER
        first, rows = len(slices) - 1, slices[-1].rows if slices else 0
        while first > 0 and (older := slices[first - 1]).rows <= 2 * rows:
            if bounded and (slices[-1].latest - older.earliest) * _SLICES_PER_WINDOW > longest:
                break
            first, rows = first - 1, rows + older.rows
        return first

    def _written(self, parts: list[StoredSlice], now: int) -> list[StoredSlice]:
        """Merge state slices into one slice, and leave out the expired rows.

        The result is an empty list if all rows have expired.
        """
        words = self._query_bits.words
        with self._writing.doing(sum(part.rows for part in parts)):
            kept = [self._kept(part.block(words), part.live, now) for part in parts]
            whole = pa.concat_tables(kept).combine_chunks()
            return [self.stored(group_by_hash(whole, words)[0])] if whole.num_rows else []

    def _kept(self, block: Block, live: NDArray[np.uint64], now: int) -> pa.Table:
        """Return the rows of a block that are still in the window of a query that selects them.

        Mask bits of queries for which a row has expired are cleared.
        """
        words = self.expiry.clear_expired(block, block.words & live, now)
        table = conform_table(block.whole_table, self._slice_schema)
        if not np.array_equal(words, block.words):
            table = replace_masks(table, words)
        alive = self._alive(block, live, now)
        return table if alive.all() else table.filter(pa.array(alive))

    def _alive(self, block: Block, live: NDArray[np.uint64], now: int) -> NDArray[np.bool_]:
        reach = self.reach
        alive = np.empty(block.rows, np.bool_)
        words = self.expiry.clear_expired(block, block.words, now)
        probe.find_alive(
            block.times, self.numbers(block), words, live, now, self.state.seen,
            reach.windows_us, reach.windows_rows, reach.indices, reach.bits, alive,
        )  # fmt: skip
        return alive

    def numbers(self, block: Block) -> Int64s:
        """Return the row numbers of a block's rows, or zeros if the rows were not numbered.

        Rows that were stored before a query counted rows have no number. No query reads the zeros.
        """
        counted = len(block.numbers) or not self.reach.counts
        return block.numbers if counted else np.zeros(block.rows, np.int64)

    def stored(self, block: Block) -> StoredSlice:
        """Return a new state slice of the rows of a block, with its statistics."""
        wanted, last = self._counted(block, self.everybody)
        known = {
            "rows": block.rows,
            "earliest": int(block.times.min()),
            "latest": int(block.times.max()),
            "last_number": int(block.numbers.max()) if len(block.numbers) else -1,
            "live": self.everybody,
            "wanted": wanted,
            "last": last,
            "pending": block.pending,
            **self._lives(block),
        }
        stored = StoredSlice(Slice(block.table), known)
        stored._block = block
        return stored

    def _lives(self, block: Block) -> dict[str, object]:
        """Return the times at which the rows of a slice expire, if a query names an expiry column.

        `ends` has the last expiry time of a row for each such query. `half_over` is the time at which half of
        the rows have left all windows.
        """
        by_query = self.expiry.by_query(block) if self.expiry else {}
        if not by_query:
            return {"ends": {}, "half_over": None}
        ends: dict[str, int] = {}
        over = np.full(block.rows, BEGINNING)
        for name, (window_us, _) in self.reach.windows.items():
            wants = (block.words & self._query_bits.mask([name])).any(axis=1)
            until = np.full(block.rows, END)
            if 0 <= window_us < FOREVER:
                until = np.minimum(block.times, END - window_us) + window_us
            if name in by_query:
                until = np.minimum(until, by_query[name])
                ends[name] = int(by_query[name][wants].max(initial=BEGINNING))
            over = np.where(wants, np.maximum(over, until), over)
        return {"ends": ends, "half_over": int(np.partition(over, block.rows // 2)[block.rows // 2])}

    def _counted(self, block: Block, live: NDArray[np.uint64]) -> tuple[dict[str, int], dict[str, int]]:
        reach = self.reach
        wanted, last = (np.zeros(len(reach.names), np.int64) for _ in range(2))
        probe.count_wanted(block.words, live, reach.indices, reach.bits, wanted, last)
        return tuple(  # type: ignore[return-value]
            {name: int(count) for name, count in zip(reach.names, counts, strict=True) if count}
            for counts in (wanted, last)
        )

    def _can_reach(self, stored: StoredSlice, now: int, seen: int) -> bool:
        return any(self._reaches(name, stored, now, seen) for name in stored.wanted)

    def _reaches(self, name: str, stored: StoredSlice, now: int, seen: int | None = None) -> bool:
        """Return True if a query's window may still contain a row of a state slice at time `now`."""
        window_us, window_rows = self.reach.windows[name]
        met = self.state.seen if seen is None else seen
        if now >= stored.ends.get(name, END):
            return False
        return bool(now - stored.latest < window_us or met - stored.last_number <= window_rows)


def resize_mask(mask: NDArray[np.uint64], words: int) -> NDArray[np.uint64]:
    """Return a mask of queries with exactly `words` 64-bit words, padded with zeros or truncated."""
    wide = np.zeros(words, np.uint64)
    wide[: len(mask)] = mask[:words]
    return wide


def replace_masks(table: pa.Table, masks: Words) -> pa.Table:
    """Replace the columns of a table that hold the query masks of its rows."""
    for word in range(masks.shape[1]):
        index = table.schema.get_field_index(f"{MASK}{word}")
        column = pa.array(np.ascontiguousarray(masks[:, word]))
        table = table.set_column(index, table.schema.field(index), column)
    return table


# A line is a group of queries that join the same streams in the same order of FROM.
#
# A new row searches for matches when no earlier row can arrive in the other streams of a line.
# The queries of a line do not wait for streams that they do not join (`operators.alignment`):
#
#     a: 5      Stream d is silent. The row of stream a probes b and c for queries over a, b, c, and is
#     b: 7      stored. For queries over a, b, d the row waits as a late row of their line, until the
#     c: 6      watermark of d reaches 5. Rows that it may match are stored until then.
#     d: -


@dataclass(frozen=True, slots=True)
class JoinLine:
    """Group of queries that join the same inputs in the same order of FROM (a line).

    `late` has, by input, the rows that other lines have processed and that still wait in this line. With
    `in_turn`, rows are read in (timestamp, input) order. Otherwise all rows of a timestamp are read together
    when the timestamp is complete.
    """

    members: tuple[JoinMember, ...]
    inputs: tuple[int, ...]
    mask: NDArray[np.uint64]
    late: Mapping[int, JoinSide]
    # number of bits that are needed to number the joined streams
    rank_bits: int
    in_turn: bool = True

    def complete(self, complete: Sequence[int]) -> int:
        """Return the lowest watermark of the inputs that the line's queries join."""
        return min(complete[input_] for input_ in self.inputs)

    def below(self, known: Sequence[int]) -> dict[int, int]:
        """Map each input to the timestamp below which its rows can be joined now.

        `known` has the watermark of each input.
        """
        own = [known[input_] for input_ in self.inputs]
        return dict(zip(self.inputs, borders(own) if self.in_turn else [min(own)] * len(own), strict=True))

    def ranks(self, times: Mapping[int, Int64s]) -> dict[int, Int64s]:
        """Return the position of each new row in the order of (timestamp, stream, arrival).

        `times` has the timestamps of the new rows of each input, in arrival order.
        """
        found = {}
        for index, input_ in enumerate(self.inputs):
            own = times[input_]
            ranks = np.arange(len(own))
            for number, other in enumerate(self.inputs):
                if number != index:
                    ranks += probe.count_before(own, times[other], int(number < index))
            found[input_] = ranks
        return found

    def due(self, firsts: Sequence[int | None]) -> tuple[int, ...] | None:
        """Return the watermark that each input must reach before the first waiting row can be joined.

        The result is None if no row waits. All inputs of the line have to reach at least the time of the row.
        """
        waiting = [_first(firsts[input_], self.late[input_].next_ts()) for input_ in self.inputs]
        asked = due_in_turn(waiting)
        if asked is None:
            return None
        first = min(ts for ts in waiting if ts is not None)
        by_input = {i: max(ts, first) for i, ts in zip(self.inputs, asked, strict=True)}
        return tuple(by_input.get(input_, BEGINNING) for input_ in range(len(firsts)))

    def store_late(self, input_: int, rows: pa.Table, words: Words) -> None:
        """Store rows that cannot be joined for the queries of this line yet."""
        wanted = words.any(axis=1)
        if wanted.any():
            self.late[input_].arrive(replace_masks(rows, words).filter(pa.array(wanted)).combine_chunks())


def lines_of(
    operator: SharedJoin,
    query_bits: QueryBits,
    late: dict[str, dict[str, SideState]],
    side_of: Callable[[int, SideState], JoinSide],
    *,
    in_turn: bool = True,
) -> list[JoinLine]:
    """Group the queries of a join by the streams that they join and by their order of FROM.

    Each group is a line. `late` has the stored late rows by line and input. Lines without queries are deleted
    from `late`. The only line of a two-way join has no late rows.
    """
    if operator.two_way:
        return [JoinLine(operator.members, (0, 1), query_bits.mask(list(query_bits.bits)), {}, 1, in_turn)]
    found: dict[str, list[JoinMember]] = {}
    for member in operator.members:
        found.setdefault(repr(member.inputs), []).append(member)
    for name in late.keys() - found.keys():
        del late[name]
    lines = []
    for name, those in found.items():
        own, inputs = late.setdefault(name, {}), operator.ports(those[0])
        waiting = {
            input_: side_of(input_, own.setdefault(called, SideState()))
            for input_, called in zip(inputs, those[0].inputs, strict=True)
        }
        mask = query_bits.mask([member.name for member in those])
        lines.append(JoinLine(tuple(those), inputs, mask, waiting, stream_ranks(len(inputs))))
    return lines


def split_ready(ready: pa.Table, input_: int, lines: Sequence[tuple[JoinLine, int]]) -> tuple[pa.Table, bool]:
    """Return the rows of an input that can be joined now for at least one group of queries.

    `lines` has the timestamp below which rows may probe for each line. Each row of `ready` may probe for at
    least one line. The masks of the returned rows contain only the queries for which the rows probe. The
    second result is True if these are all rows of `ready`.
    """
    if not any(line.late for line, _ in lines):
        return ready, True
    late = [line.late[input_].ready(below) for line, below in lines]
    times, whole = column_numbers(ready, BLOCK_TS), True
    counts = [len(times) if below == FOREVER else int(np.searchsorted(times, below)) for _, below in lines]
    now = ready
    if any(count < len(times) for count in counts):
        words = mask_words(ready, len(lines[0][0].mask))
        wanted, whole = np.zeros_like(words), False
        for (line, _), count in zip(lines, counts, strict=True):
            wanted[:count] |= words[:count] & line.mask
            line.store_late(input_, ready.slice(count), words[count:] & line.mask)
        now = replace_masks(ready, wanted).filter(pa.array(wanted.any(axis=1)))
    if any(table.num_rows for table in late):
        now = pa.concat_tables([*late, now]).combine_chunks()
        now = now.take(pa.array(np.lexsort([column_numbers(now, name) for name in (BLOCK_SEQ, BLOCK_TS)])))
        whole = False
    return now.combine_chunks(), whole


def _first(*times: int | None) -> int | None:
    return min((ts for ts in times if ts is not None), default=None)
