"""View: entries of selected patterns by key and time, with span indexes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.machine_code.kernel import kernel
from slicemill.operators.panes.edges import Ints
from slicemill.operators.panes.entries import Partials, partial_columns, picked, reduced
from slicemill.operators.panes.partials import Columns, Counts


@dataclass
class PaneView:
    """Entries ordered by key and time.

    The entries of `keys[r]` are at positions begin[r] to begin[r + 1]. There is one entry per key and
    pane, unless entries are single tuples.
    """

    keys: Ints
    begin: Ints
    columns: Columns
    partials: Partials
    _made: dict[str, Any] = field(default_factory=dict)

    @property
    def start(self) -> Ints:
        start: Ints = self.columns["start"]
        return start

    def index(self, name: str) -> Any:
        """Return the index of a partial, built on first use."""
        if name not in self._made:
            if not name:
                self._made[name] = Counts(self.columns["rows"])
            else:
                columns = partial_columns(self.columns, name)
                self._made[name] = self.partials[name].index(columns, self.begin)
        return self._made[name]

    def shown_keys(self, values: Callable[[Ints], list[pa.Array]]) -> list[pa.Array]:
        """Return the key columns, with -0.0 replaced by 0.0."""
        if "keys" not in self._made:
            self._made["keys"] = [
                pc.add(column, 0.0) if pa.types.is_floating(column.type) else column
                for column in values(self.keys)
            ]
        found: list[pa.Array] = self._made["keys"]
        return found

    def ranks(self, keys: Ints) -> Ints:
        """Return the rank of each key, -1 for a key without entries."""
        places = np.searchsorted(self.keys, keys)
        places[places == len(self.keys)] = 0
        found = self.keys[places] == keys if len(self.keys) else np.zeros(len(keys), np.bool_)
        return np.where(found, places, -1).astype(np.int64)


def by_key(entries: Columns, n_keys: int) -> Columns:
    """Return the entries ordered by key, then time."""
    return picked(entries, _key_order(entries["key"], n_keys))


def view_of(
    ordered: Columns, selected: NDArray[np.bool_], since: int, partials: Partials, single: bool = False
) -> PaneView:
    """Return the view of entries with a selected pattern.

    Panes that begin before `since` are excluded. `ordered` is sorted by key once and shared by several
    views.
    """
    wanted = selected[ordered["pattern"]] & (ordered["start"] >= since)
    columns = ordered if wanted.all() else picked(ordered, np.flatnonzero(wanted))
    key, start = columns["key"], columns["start"]
    if not len(key):
        return PaneView(key, np.zeros(1, np.int64), columns, partials)
    changes = key[1:] != key[:-1]
    again = ~changes & (start[1:] == start[:-1])
    if not single and again.any():
        group = np.concatenate(([0], np.cumsum(~again)))
        columns = reduced(columns, group, int(group[-1]) + 1, partials)
        key = columns["key"]
        changes = key[1:] != key[:-1]
    begin = np.concatenate(([0], np.flatnonzero(changes) + 1, [len(key)]))
    return PaneView(key[begin[:-1]], begin, columns, partials)


@kernel
def _key_order(key: Ints, n_keys: int) -> Ints:
    place = np.zeros(n_keys + 1, np.int64)
    for k in key:
        place[k + 1] += 1
    place = np.cumsum(place)
    order = np.empty(len(key), np.int64)
    for i in range(len(key)):
        order[place[key[i]]] = i
        place[key[i]] += 1
    return order
