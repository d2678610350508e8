"""The entries that one set of conditions selects, by key and time, ready for questions about spans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from slicemill.kernels.panes.edges import Ints
from slicemill.kernels.panes.entries import Partials, partial_columns, picked, reduced
from slicemill.kernels.panes.partials import Columns, Counts


@dataclass
class View:
    """Entries begin[r] to begin[r + 1] are those of key keys[r], by time, and one per pane unless single."""

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
        """The index of a partial, made when it is first asked for."""
        if name not in self._made:
            if not name:
                self._made[name] = Counts(self.columns["rows"])
            else:
                columns = partial_columns(self.columns, name)
                self._made[name] = self.partials[name].index(columns, self.begin)
        return self._made[name]

    def shown_keys(self, values: Callable[[Ints], list[pa.Array]]) -> list[pa.Array]:
        """The key columns; there is one zero."""
        if "keys" not in self._made:
            self._made["keys"] = [
                pc.add(column, 0.0) if pa.types.is_floating(column.type) else column
                for column in values(self.keys)
            ]
        found: list[pa.Array] = self._made["keys"]
        return found

    def ranks(self, keys: Ints) -> Ints:
        """The rank of each key, -1 for one without entries."""
        places = np.searchsorted(self.keys, keys)
        places[places == len(self.keys)] = 0
        found = self.keys[places] == keys if len(self.keys) else np.zeros(len(keys), np.bool_)
        return np.where(found, places, -1).astype(np.int64)


def view_of(
    entries: Columns,
    selected: NDArray[np.bool_],
    since: int,
    n_keys: int,
    partials: Partials,
    single: bool = False,
) -> View:
    """The view of the entries whose pattern is selected and whose pane begins at `since` or later."""
    first = int(np.searchsorted(entries["start"], since))
    chosen = first + np.flatnonzero(selected[entries["pattern"][first:]])
    keys, begin, order = _by_key(entries["key"], chosen, n_keys)
    columns = picked(entries, order)
    if single:
        return View(keys, begin, columns, partials)
    again = np.zeros(len(order), np.bool_)
    again[1:] = columns["start"][1:] == columns["start"][:-1]
    again[begin[:-1]] = False
    if again.any():
        group = np.cumsum(~again) - 1
        columns = reduced(columns, group, int(group[-1]) + 1, partials)
        begin = np.append(group[begin[:-1]], group[-1] + 1)
    return View(keys, begin, columns, partials)


@njit(cache=True)
def _by_key(key: Ints, chosen: Ints, n_keys: int) -> tuple[Ints, Ints, Ints]:
    """The keys there are, where those of each begin, and the places of the chosen ones in that order."""
    place = np.zeros(n_keys + 1, np.int64)
    for i in chosen:
        place[key[i] + 1] += 1
    keys, begin = np.empty(n_keys, np.int64), np.empty(n_keys + 1, np.int64)
    count = 0
    for k in range(n_keys):
        if place[k + 1]:
            keys[count], begin[count] = k, place[k]
            count += 1
        place[k + 1] += place[k]
    begin[count] = len(chosen)
    order = np.empty(len(chosen), np.int64)
    for i in chosen:
        order[place[key[i]]] = i
        place[key[i]] += 1
    return keys[:count], begin[: count + 1], order
