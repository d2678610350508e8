"""Entries: aggregates of the tuples of one pane, key and pattern.

Entries are stored as columns: `start` (of the pane), `key` and `pattern` (numbers), `seq` (of the first
tuple), `rows` (tuple count), and the columns of each partial aggregate. Entries are ordered by pane, and
within a pane by first tuple. Tuples are ordered by time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.machine_code.kernel import kernel
from slicemill.operators.panes.edges import Ints
from slicemill.operators.panes.groups import first_of_group, sum_by_group
from slicemill.operators.panes.partials import Columns, Partial, taken
from slicemill.scalar.vectors import numbers

_SPARE_CELLS = 4
_OWN = ("start", "key", "pattern", "seq", "rows")

Partials = Mapping[str, Partial]  # by name


def entries_of(
    panes: tuple[Ints, Ints],
    cells: tuple[Ints, int],
    seqs: Ints,
    lifted: Mapping[str, Columns],
    partials: Partials,
) -> tuple[Columns, Ints]:
    """Aggregate rows into entries.

    Return these without key and pattern, and the first row of each. `cells` has a number per row for its
    combination of key and pattern, and how many combinations there are.
    """
    starts, borders = panes
    slot, pane, count = _slots(cells[0], cells[1], borders)
    first = first_of_group(slot, count)
    entries: dict[str, Any] = {"start": starts[pane], "seq": seqs[first], "rows": _counted(slot, count)}
    for name, columns in lifted.items():
        entries |= _stored(name, partials[name].reduce(columns, slot, count))
    return entries, first


def cells_of(codes: Ints, n_codes: int, patterns: Ints, n_patterns: int) -> tuple[Ints, int]:
    """Return a number per row for its key and pattern.

    The second result is an upper bound of these numbers.
    """
    if n_patterns == 1:
        return codes, n_codes
    both = codes * n_patterns + patterns
    if n_codes * n_patterns <= _SPARE_CELLS * len(both):
        return both, n_codes * n_patterns  # Unused numbers cost less than encoding the used ones.
    encoded = pc.dictionary_encode(pa.array(both))
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def _counted(slot: Ints, count: int) -> Ints:
    return np.bincount(slot, minlength=count).astype(np.int64)


@kernel
def _slots(cells: Ints, n_cells: int, borders: Ints) -> tuple[Ints, Ints, int]:
    """Return each row's entry, each entry's pane, and the entry count."""
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


def reduced(entries: Columns, group: Ints, count: int, partials: Partials) -> Columns:
    """Combine entries of the same group.

    The result keeps `seq` of the group's first tuple.
    """
    first = first_of_group(group, count)
    made: dict[str, Any] = {name: entries[name][first] for name in ("start", "key", "pattern", "seq")}
    made["rows"] = sum_by_group(entries["rows"], group, count)
    for name, partial in partials.items():
        made |= _stored(name, partial.reduce(_own(entries, name), group, count))
    return made


def joined(parts: Sequence[Columns], partials: Partials) -> Columns:
    """Concatenate entries.

    Partials missing in some parts are filled in; unused partials are dropped.
    """
    made: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in _OWN}
    for name, partial in partials.items():
        own = [_own(part, name) or partial.missing(len(part["start"])) for part in parts]
        made |= _stored(name, partial.joined(own))
    return made


def no_entries() -> Columns:
    return {name: np.empty(0, np.int64) for name in _OWN}


def picked(entries: Columns, places: Ints) -> Columns:
    return {name: taken(column, places) for name, column in entries.items()}


def merged(older: Columns, newer: Columns, partials: Partials) -> Columns:
    """Merge two consecutive sets of entries.

    The last pane of `older` may be the first of `newer`.
    """
    border = newer["start"][0]
    head = int(np.searchsorted(older["start"], border))
    tail = int(np.searchsorted(newer["start"], border, side="right"))
    whole = joined([older, newer], partials)
    if head == len(older["start"]):
        return whole
    last = len(older["start"]) + tail
    codes = whole["key"][head:last] * (int(whole["pattern"].max()) + 1) + whole["pattern"][head:last]
    _, firsts, group = np.unique(codes, return_index=True, return_inverse=True)
    # Keep entries of a pane in the order of their first tuples.
    ranks = np.empty(len(firsts), np.int64)
    ranks[np.argsort(firsts)] = np.arange(len(firsts))
    group = np.concatenate((np.arange(head), head + ranks[group]))
    count = int(group.max()) + 1
    rest = len(whole["start"]) - last
    return reduced(whole, np.concatenate((group, count + np.arange(rest))), count + rest, partials)


def partial_columns(entries: Columns, name: str) -> Columns:
    return _own(entries, name)


def _own(entries: Columns, name: str) -> Columns:
    prefix = f"{name}|"
    return {column.removeprefix(prefix): v for column, v in entries.items() if column.startswith(prefix)}


def _stored(name: str, columns: Columns) -> dict[str, Any]:
    return {f"{name}|{field}": values for field, values in columns.items()}


# -- storage ---------------------------------------------------------------------------------------------


def to_table(entries: Columns) -> pa.Table:
    return pa.table({name: _to_arrow(column) for name, column in entries.items()})


def from_table(table: pa.Table) -> Columns:
    return {name: _from_arrow(name, table.column(name)) for name in table.column_names}


def _to_arrow(column: Any) -> pa.Array:
    if isinstance(column, np.ndarray) and column.dtype == object:
        return pa.array([_bytes(value) for value in column.tolist()], pa.large_binary())
    return column if isinstance(column, pa.Array) else pa.array(column)


def _from_arrow(name: str, column: pa.ChunkedArray) -> Any:
    whole = column.combine_chunks()
    if name.endswith("|x"):
        array: NDArray[Any] = np.empty(len(whole), object)
        array[:] = [int.from_bytes(value, "little", signed=True) for value in whole.to_pylist()]
        return array
    return whole if name.endswith("|value") else numbers(whole)


def _bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
