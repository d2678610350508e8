"""Entries in two phases: of the rows of one chunk, and of such entries of many chunks.

Early entries know nothing of a unit's numbers: they have the values of keys (`key0`, `key1`, …) and the
conditions that hold, as bits (`word0`, …), beside the start of the pane, how many rows there were, and what
partials keep. A first or last value has the time and the row of its tuple, by which those of several chunks
are put in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.esl.expression import Expr
from slicemill.kernels.keys import distinct_keys
from slicemill.kernels.panes.edges import Ints, cut
from slicemill.kernels.panes.entries import (
    Partials,
    cells_of,
    entries_of,
    from_table,
    partial_columns,
    to_table,
)
from slicemill.kernels.panes.partials import Columns, Edge, Partial, taken
from slicemill.kernels.panes.selection import Input, Selected, Selection, every_time

_BEGINNING = -(2**63) + 1
_KEY, _WORD, _AT = "key", "word", "at"


class Reduction:
    """Makes early entries of rows. `uses` has the partials that are made of the tuples of each condition."""

    def __init__(
        self,
        given: Input,
        conditions: Sequence[Expr | None],
        uses: Sequence[Sequence[Partial]],
        edges: tuple[tuple[int, int], ...],
    ) -> None:
        names = [str(place) for place in range(len(conditions))]
        self._selection = Selection(
            given, dict(zip(names, conditions, strict=True)), dict.fromkeys(names, every_time)
        )
        self._names = names
        self._edges = edges
        self._partials = {partial.name: partial for made in uses for partial in made}
        self._users: dict[Expr, list[str]] = {}
        for name, made in zip(names, uses, strict=True):
            for expr in dict.fromkeys(partial.expr for partial in made):
                self._users.setdefault(expr, []).append(name)

    def entries(self, table: pa.Table) -> pa.Table | None:
        """The early entries of rows in order of time; None if something cannot be computed on one of them."""
        selected, failed = self._selection.select(table, self._names)
        found, unknown = self._selection.arguments(selected, self._users)
        if failed or unknown:
            return None
        ts = selected.table.column("_ts").to_numpy()
        rows = len(ts)
        places = np.arange(rows)
        keys = distinct_keys(selected.keys, rows)
        words = distinct_keys([pa.array(word) for word in selected.words], rows)
        cells = cells_of(keys.codes, len(keys.values), words.codes, len(words.values))
        lifted = {name: partial.lift(found[partial.expr], places) for name, partial in self._partials.items()}
        panes = cut(ts, self._edges, _BEGINNING)
        entries, first = entries_of(panes, cells, np.zeros(rows, np.int64), lifted, self._partials)
        made = {name: column for name, column in entries.items() if name != "arrival"}
        for name in [name for name in made if name.endswith("|place")]:
            made[name.removesuffix("place") + _AT] = ts[np.abs(made[name])]
        for place, word in enumerate(selected.words):
            made[f"{_WORD}{place}"] = word[first]
        early = to_table(made)
        for place, key in enumerate(selected.keys):
            early = early.append_column(f"{_KEY}{place}", key.take(pa.array(first)))
        return early


@dataclass(frozen=True)
class EarlyEntries:
    """Early entries of some chunks as if they were rows: in the order of their panes, with partials."""

    selected: Selected
    start: Ints
    arrival: Ints
    rows: Ints
    lifted: Mapping[str, Columns]

    def panes(self, not_before: int) -> tuple[Ints, Ints]:
        """Where panes begin, and the place of the first entry of each."""
        changes = np.flatnonzero(self.start[1:] != self.start[:-1]) + 1
        borders = np.concatenate(([0], changes, [len(self.start)]))
        return np.maximum(self.start[borders[:-1]], not_before), borders


def put_together(
    parts: Sequence[tuple[pa.Table, int]], selection: Selection, partials: Partials, seen: int
) -> EarlyEntries:
    """Early entries of chunks, in the order of the log, each with the time at which its chunk arrived.

    First and last values get places from `seen` on, as many as there are entries, ours or not.
    """
    count = [table.num_rows for table, _ in parts]
    arrival = np.repeat(np.array([came for _, came in parts], np.int64), count)
    chunk = np.repeat(np.arange(len(parts)), count)
    columns = [from_table(_without_keys(table)) for table, _ in parts]
    lifted: dict[str, Columns] = {}
    for name, partial in partials.items():
        kept = partial.joined([partial_columns(part, name) for part in columns])
        lifted[name] = _in_log(kept, partial.last, chunk, seen) if isinstance(partial, Edge) else kept
    start, rows = (np.concatenate([part[name] for part in columns]) for name in ("start", "rows"))
    whole = pa.table({"place": pa.array(np.arange(len(start)))})
    words, keys = _words(columns), _keys([table for table, _ in parts])
    order = np.argsort(start, kind="stable")
    if np.any(order[1:] < order[:-1]):
        whole, words = whole.take(pa.array(order)), words[:, order]
        keys = [key.take(pa.array(order)) for key in keys]
    selected = selection.ours(Selected(whole, words, keys))
    mine = selected.table.column("place").to_numpy()
    if len(mine) < len(start) or np.any(mine[1:] < mine[:-1]):
        start, arrival, rows = start[mine], arrival[mine], rows[mine]
        lifted = {name: _picked(kept, mine) for name, kept in lifted.items()}
    return EarlyEntries(selected, start, arrival, rows, lifted)


def _picked(columns: Columns, places: Ints) -> Columns:
    return {name: taken(column, places) for name, column in columns.items()}


def _in_log(columns: Columns, last: bool, chunk: Ints, seen: int) -> Columns:
    """First or last values with their places in the log, instead of those in their chunks."""
    order = np.lexsort((np.abs(columns["place"]), chunk, columns[_AT]))
    rank = np.empty(len(order), np.int64)
    rank[order] = seen + np.arange(len(order))
    return {"value": columns["value"], "place": -rank if last else rank}


def _words(columns: Sequence[Columns]) -> NDArray[np.uint64]:
    names = [name for name in columns[0] if name.startswith(_WORD)]
    count = sum(len(part["start"]) for part in columns)
    words: NDArray[np.uint64] = np.empty((len(names), count), np.uint64)
    for place, name in enumerate(names):
        words[place] = np.concatenate([part[name].view(np.uint64) for part in columns])
    return words


def _keys(tables: Sequence[pa.Table]) -> list[pa.ChunkedArray]:
    names = [name for name in tables[0].column_names if name.startswith(_KEY)]
    return list(pa.concat_tables([table.select(names) for table in tables]).columns) if names else []


def _without_keys(table: pa.Table) -> pa.Table:
    return table.select([name for name in table.column_names if not name.startswith(_KEY)])
