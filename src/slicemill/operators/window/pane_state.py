"""State of windows over panes: entries, keys, and the windows that each query has emitted.

An entry has the partial aggregates of the tuples of one pane, key and pattern. A pattern is the set of
queries whose conditions a tuple satisfies. Entries are stored in slices, which are merged like the runs of a
log-structured merge tree. A slice has more than twice the rows of the next slice. There are therefore few
slices, and each row is rewritten only a few times. A pane that is still open may have entries in several
slices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.codec.registry import register, stored_as
from slicemill.columns.keys import Keys
from slicemill.columns.pieces import Slice
from slicemill.functions.vectors import numbers
from slicemill.kernels.arrays import Int64s
from slicemill.kernels.kernel import kernel
from slicemill.operators.window.partial_aggregates import Columns, PartialAggregate, take_values
from slicemill.operators.window.spans import first_of_group, sum_by_group
from slicemill.time import BEGINNING, END

_SMALL = 1 << 12
_FEW = 1 << 10


@stored_as("panes.entries", version=1)
@dataclass
class PaneStore:
    """Stored entries (partial aggregates), as a list of tables ordered by pane.

    If `single` is set, each entry has one tuple, and entries are never merged.
    """

    single: bool = False
    slices: list[Slice] = field(default_factory=list)

    def append(self, entries: Columns, partials: Partials) -> None:
        merge = concat_partials if self.single else merge_panes
        self.slices.append(Slice(to_table(entries)))
        while len(self.slices) > 1 and self.slices[-2].table.num_rows <= 2 * self.slices[-1].table.num_rows:
            newer, older = from_table(self.slices.pop().table), from_table(self.slices.pop().table)
            self.slices.append(Slice(to_table(merge([older, newer], partials))))

    def all(self, partials: Partials) -> Columns:
        parts = [empty_partials()]
        for part in self.slices:
            parts.append(from_table(part.table))
        return concat_partials(parts, partials)

    def keep(self, horizon: Int64s) -> None:
        """Evict the entries of panes that no query of their pattern (set of queries) reads any more.

        These panes begin before `horizon`, which has a time for each pattern. A large slice is rewritten only
        if more than half of its entries are evicted.
        """
        kept = []
        for part in self.slices:
            start, pattern = part.table.column("start").to_numpy(), part.table.column("pattern").to_numpy()
            alive = start >= horizon[pattern]
            count = int(alive.sum())
            if count == len(alive) or 2 * count >= len(alive) > _SMALL:
                kept.append(part)
            elif count:
                kept.append(Slice(part.table.filter(pa.array(alive))))
        self.slices = kept

    def used(self, column: str, count: int) -> NDArray[np.bool_]:
        """Return for each number below `count` whether an entry has this key number or pattern number.

        `column` is "key" or "pattern" (set of queries).
        """
        alive = np.zeros(count, np.bool_)
        for part in self.slices:
            alive[part.table.column(column).to_numpy()] = True
        return alive

    def renumber(self, column: str, numbers: NDArray[np.integer[Any]]) -> None:
        """Replace the key numbers or the pattern numbers of all entries by new numbers."""
        self.slices = [Slice(_renumber_column(part.table, column, numbers)) for part in self.slices]

    @property
    def rows(self) -> int:
        return sum(part.table.num_rows for part in self.slices)


class _FormerKeys:
    """Former stored form of group keys. Checkpoints with this form are read as `Keys`; none are written."""


def _read_former_keys(slices: list[Slice]) -> Any:
    return Keys.of_pieces(slices, sum([len(part.table) for part in slices]))


register("panes.keys", 1, _FormerKeys, lambda _: None, _read_former_keys)


@stored_as("panes.member", version=1)
@dataclass
class MemberState:
    """State of one query that shares panes with other queries.

    Windows that end at or before `closed` have been emitted. `oldest` and `newest` are the starts of the
    first and the last pane with tuples of the query. `waiting` is used for OVER with SLIDE, and has the last
    tuple of each key in each open slot.
    """

    definition: object
    closed: int = BEGINNING
    oldest: int | None = None
    newest: int | None = None
    waiting: pa.Table | None = None
    failure: str | None = None


@stored_as("panes", version=1)
@dataclass
class PaneState:
    """State that several queries over the same panes share.

    A pattern is the set of queries whose conditions a tuple satisfies. `patterns` has these sets by pattern
    number. `entries` have the partial aggregates of each pane, key and pattern. `values` are entries of
    single tuples, for aggregates that read each value. `members` has the state of each query.
    """

    keys: Keys = field(default_factory=Keys)
    entries: PaneStore = field(default_factory=PaneStore)
    values: PaneStore = field(default_factory=lambda: PaneStore(single=True))
    patterns: list[frozenset[str]] = field(default_factory=list)
    members: dict[str, MemberState] = field(default_factory=dict)
    seen: int = 0
    newest: int = BEGINNING

    def hand_over(self, definitions: Mapping[str, object], successors: Mapping[str, str]) -> None:
        """Move the state of each replaced query to the query that replaces it."""
        taken = {
            before: name
            for name, before in successors.items()
            if name in definitions and before in self.members
        }
        for before, name in taken.items():
            self.members[name] = replace(self.members.pop(before), definition=definitions[name])
        if taken:
            self.patterns = [frozenset(taken.get(name, name) for name in p) for p in self.patterns]

    def adopt(self, definitions: Mapping[str, object]) -> None:
        """Restrict the state to the queries in `definitions`.

        New queries start with empty state. The state of removed queries is dropped.
        """
        known = {
            name: member
            for name, member in self.members.items()
            if name in definitions and member.definition == definitions[name]
        }
        self.members = {name: known.get(name) or MemberState(what) for name, what in definitions.items()}
        self.patterns = [pattern & known.keys() for pattern in self.patterns]

    def pattern(self, names: frozenset[str]) -> int:
        if names not in self.patterns:
            self.patterns.append(names)
        return self.patterns.index(names)

    def release(self, since: dict[str, int]) -> None:
        """Evict entries (partial aggregates) that no window will read again, and keys without entries.

        `since` is the start of the earliest pane that each query still reads.
        """
        horizon = np.full(len(self.patterns), END)
        for index, names in enumerate(self.patterns):
            for name in names & since.keys():
                horizon[index] = min(horizon[index], since[name])
        rows = 0
        for store in (self.entries, self.values):
            store.keep(horizon)
            rows += store.rows
        if len(self.keys) > 2 * rows + _FEW:
            self._evict_keys()
        if len(self.patterns) > _FEW:
            self._evict_patterns()

    def _evict_keys(self) -> None:
        alive = self.entries.used("key", len(self.keys)) | self.values.used("key", len(self.keys))
        for member in self.members.values():
            if member.waiting is not None:
                alive[member.waiting.column("_key").to_numpy()] = True
        numbers = self.keys.keep(alive)
        for store in (self.entries, self.values):
            store.renumber("key", numbers)
        for member in self.members.values():
            if member.waiting is not None:
                member.waiting = _renumber_column(member.waiting, "_key", numbers)

    def _evict_patterns(self) -> None:
        count = len(self.patterns)
        alive = self.entries.used("pattern", count) | self.values.used("pattern", count)
        if 2 * int(alive.sum()) < count:
            self.patterns = [p for p, used in zip(self.patterns, alive.tolist(), strict=True) if used]
            for store in (self.entries, self.values):
                store.renumber("pattern", np.cumsum(alive) - 1)


def _renumber_column(table: pa.Table, column: str, numbers: NDArray[np.integer[Any]]) -> pa.Table:
    changed = numbers[table.column(column).to_numpy()].astype(np.int64)
    return table.set_column(table.column_names.index(column), column, pa.array(changed))


# Entries: partial aggregates of the tuples of one pane, key and pattern (set of queries).
#
# Entries are stored as columns: start time of the pane (`start`), key number (`key`), pattern number
# (`pattern`), sequence number of the first tuple (`seq`), number of tuples (`rows`), and the columns of each
# partial aggregate. Entries are ordered by pane, and in a pane by their first tuple. Tuples are ordered by
# time.


_SPARE_CELLS = 4
_OWN = ("start", "key", "pattern", "seq", "rows")

Partials = Mapping[str, PartialAggregate]  # partial aggregates by name


def aggregate_panes(
    panes: tuple[Int64s, Int64s],
    cells: tuple[Int64s, int],
    seqs: Int64s,
    lifted: Mapping[str, Columns],
    partials: Partials,
) -> tuple[Columns, Int64s]:
    """Aggregate rows to entries: one entry for each pane, key and pattern (set of queries).

    Return the entries without the columns `key` and `pattern`, and the first row of each entry. `cells` has
    for each row the number of its combination of key and pattern, and the number of combinations.
    """
    starts, borders = panes
    slot, pane, count = _slots(cells[0], cells[1], borders)
    first = first_of_group(slot, count)
    rows = np.bincount(slot, minlength=count).astype(np.int64)
    entries: dict[str, Any] = {"start": starts[pane], "seq": seqs[first], "rows": rows}
    for name, columns in lifted.items():
        add_partial(entries, name, partials[name].reduce(columns, slot, count))
    return entries, first


def cells_of(codes: Int64s, n_codes: int, patterns: Int64s, n_patterns: int) -> tuple[Int64s, int]:
    """Return for each row a number that identifies its combination of key and pattern (set of queries).

    The second result is an upper bound of these numbers.
    """
    if n_patterns == 1:
        return codes, n_codes
    both = codes * n_patterns + patterns
    if n_codes * n_patterns <= _SPARE_CELLS * len(both):
        return both, n_codes * n_patterns  # numbers with gaps are faster to compute than dense numbers
    encoded = pc.dictionary_encode(pa.array(both))
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


@kernel
def _slots(cells: Int64s, n_cells: int, borders: Int64s) -> tuple[Int64s, Int64s, int]:
    """Assign rows to entries (one per pane and combination of key and pattern).

    Return the entry number of each row, the pane of each entry, and the number of entries.
    """
    latest = np.full(n_cells, -1, np.int64)
    slot, pane = np.empty(len(cells), np.int64), np.empty(len(cells), np.int64)
    count = 0
    for p in range(len(borders) - 1):
        first = count
        for i in range(borders[p], borders[p + 1]):
            c = cells[i]
            if latest[c] < first:
                latest[c], pane[count] = count, p
                count += 1
            slot[i] = latest[c]
    return slot, pane[:count], count


def reduce_groups(entries: Columns, group: Int64s, count: int, partials: Partials) -> Columns:
    """Merge the entries (partial aggregates) of each group into one entry.

    `seq` of a merged entry is the sequence number of the first tuple of the group.
    """
    first = first_of_group(group, count)
    made: dict[str, Any] = {"rows": sum_by_group(entries["rows"], group, count)}
    for name in ("start", "key", "pattern", "seq"):
        made[name] = entries[name][first]
    for name, partial in partials.items():
        add_partial(made, name, partial.reduce(partial_columns(entries, name), group, count))
    return made


def concat_partials(parts: Sequence[Columns], partials: Partials) -> Columns:
    """Concatenate several sets of entries (partial aggregates of panes).

    Partial aggregates that a set lacks are filled with neutral values. Unused partial aggregates are dropped.
    """
    made: dict[str, Any] = {}
    for name in _OWN:
        made[name] = np.concatenate([part[name] for part in parts])
    for name, partial in partials.items():
        columns = []
        for part in parts:
            columns.append(partial_columns(part, name) or partial.missing(len(part["start"])))
        add_partial(made, name, partial.joined(columns))
    return made


def empty_partials() -> Columns:
    return dict.fromkeys(_OWN, np.empty(0, np.int64))


def take_partials(entries: Columns, indices: Int64s) -> Columns:
    found = {}
    for name, column in entries.items():
        found[name] = take_values(column, indices)
    return found


def merge_panes(parts: Sequence[Columns], partials: Partials) -> Columns:
    """Merge older and newer entries (partial aggregates of panes).

    The last panes of the older entries may also be the first panes of the newer entries. Entries of the same
    pane, key and pattern are merged into one entry.
    """
    older, newer = parts
    border = newer["start"][0]
    head = int(np.searchsorted(older["start"], border))
    tail = int(np.searchsorted(newer["start"], border, side="right"))
    whole = concat_partials(parts, partials)
    if head == len(older["start"]):
        return whole
    last = len(older["start"]) + tail
    codes = whole["key"][head:last] * (int(whole["pattern"].max()) + 1) + whole["pattern"][head:last]
    _, firsts, group = np.unique(codes, return_index=True, return_inverse=True)
    # In each pane, order the merged entries by their first tuples.
    ranks = np.empty(len(firsts), np.int64)
    ranks[np.argsort(firsts)] = np.arange(len(firsts))
    group = np.concatenate((np.arange(head), head + ranks[group]))
    count = int(group.max()) + 1
    rest = len(whole["start"]) - last
    return reduce_groups(whole, np.concatenate((group, count + np.arange(rest))), count + rest, partials)


def partial_columns(entries: Columns, name: str) -> Columns:
    """Return the columns of one partial aggregate in stored entries, by field name."""
    prefix, found = f"{name}|", {}
    for column, values in entries.items():
        if column.startswith(prefix):
            found[column.removeprefix(prefix)] = values
    return found


def add_partial(entries: dict[str, Any], name: str, columns: Columns) -> None:
    """Add the columns of one partial aggregate to the columns of entries."""
    for field_, values in columns.items():
        entries[f"{name}|{field_}"] = values


# Storage of entries as tables. Integers beyond 64 bits are stored as bytes.


def to_table(entries: Columns) -> pa.Table:
    arrays = []
    for column in entries.values():
        if isinstance(column, np.ndarray) and column.dtype == object:
            column = pa.array(map(_bytes, column.tolist()), pa.large_binary())
        arrays.append(column if isinstance(column, pa.Array) else pa.array(column))
    return pa.table(arrays, names=list(entries))


def from_table(table: pa.Table) -> Columns:
    found: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        whole = column.combine_chunks()
        if name.endswith("|x"):
            found[name] = np.empty(len(whole), object)
            found[name][:] = [int.from_bytes(value, "little", signed=True) for value in whole.to_pylist()]
        else:
            found[name] = whole if name.endswith("|value") else numbers(whole)
    return found


def _bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
