"""Coalescing of whole tables, equivalent to `reference.coalesce`.

All tuples that a window may still show are sorted by partition. Runs are found in one pass, and each
window emits its part of them. The time is proportional to the number of stored tuples and output rows, for
any slide. Results do not depend on how the input is split into tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from slicemill.columns.intervals import Mask, Numbers, Places, by_partition
from slicemill.columns.keys import distinct_keys
from slicemill.columns.keys import shown as shown_values
from slicemill.columns.pieces import kept
from slicemill.esl.types.expression import ColumnRef, Expr
from slicemill.esl.types.schema import Schema
from slicemill.operators.coalesce.runs import Runs, Shown, as_before, ends_of, runs_of, shown
from slicemill.operators.coalesce.spans import RunSpans
from slicemill.operators.coalesce.spec import Coalesce
from slicemill.operators.panes.state import StoredKeys
from slicemill.scalar.columns import compile_many
from slicemill.scalar.values import ExpressionError
from slicemill.scalar.vectors import numbers
from slicemill.storage.codec import stored_as
from slicemill.storage.slice import Slice

TS, SEQ, ARRIVAL = "_ts", "_seq", "_arr"
KEY, TIME, NUMBERED, SELECTED, NUMBER = "key", "ts", "seq", "selected", "number"
BEGINNING, END = -(2**63), 2**63 - 1


@stored_as("coalesce", version=1)
@dataclass(slots=True)
class CoalescingState:
    """Tuples that windows may still show, in order of arrival.

    For windows by time, all slides up to `closed` have been emitted. For windows by rows, `arrived` has
    the number of tuples of each partition.
    """

    keys: StoredKeys = field(default_factory=StoredKeys)
    pieces: list[Slice] = field(default_factory=list)
    now: int = BEGINNING
    closed: int | None = None
    finished: bool = False
    arrived: Places = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Content:
    """All stored and new tuples, sorted by partition and arrival.

    `order` has their positions in the table.
    """

    table: pa.Table
    order: Places
    partitions: Numbers
    ts: Places
    selected: Mask
    values: Sequence[pa.Array]
    runs: Runs

    def in_table(self, sorted_: Mask) -> Mask:
        """Return a mask of sorted rows in the order of the table."""
        out = np.empty(len(sorted_), np.bool_)
        out[self.order] = sorted_
        return out

    def changes(self) -> Mask:
        """Return the rows with a period that differ from their predecessor.

        Unbounded windows need only these rows, because there a run always begins with its first tuple.
        """
        places = np.flatnonzero(ends_of(self.partitions, self.ts) > self.ts)
        partitions, selected = self.partitions[places], self.selected[places]
        same = partitions[1:] == partitions[:-1]
        same &= selected[1:] == selected[:-1]
        same &= as_before([column.take(pa.array(places)) for column in self.values]) | ~selected[1:]
        out = np.zeros(len(self.order), np.bool_)
        out[places[:1]] = True
        out[places[1:][~same]] = True
        return out


class Coalescing(ABC):
    """Coalescing operator, without the window logic of the subclasses."""

    def __init__(
        self,
        operator: Coalesce,
        schema: Schema,
        names: Sequence[str],
        state: CoalescingState,
    ) -> None:
        """Compile the expressions.

        `names` are the output columns: keys, attributes, the period, and the flag for open runs.
        """
        assert operator.window.slide is not None, "the grammar asks for SLIDES"
        self.state = state
        self._slide, self._extent = operator.window.slide, operator.window.extent
        self._names = list(names)
        self._tells_open, self._changes = operator.tells_open, operator.changes
        self._keys = [item.expr for item in operator.partition_by]
        # A key that is also an attribute appears once, as the attribute.
        self._heads = [
            place for place, item in enumerate(operator.partition_by) if item.name not in operator.attributes
        ]
        attributes: list[Expr] = [
            ColumnRef(n, schema.columns[schema.index(n)].type) for n in operator.attributes
        ]
        self._attributes = [str(place) for place in range(len(attributes))]
        conditions = [] if operator.where is None else [operator.where]
        self._evaluate = compile_many([*self._keys, *attributes, *conditions], schema)

    def run(
        self, table: pa.Table, complete: int, latest_elsewhere: int = BEGINNING
    ) -> tuple[pa.Table | None, int]:
        """Process new rows in order.

        `complete` and the returned number are lower bounds of later timestamps. At the end of the input,
        time stops at the last tuple of all cells.
        """
        known = [ts.as_py() for ts in table.column(TS)[-1:]]
        known.append(latest_elsewhere if complete == END else complete)
        self.state.now = max([self.state.now, *known])
        new, arrivals = self._taken(table)
        out = self._report(new, arrivals, ended=complete == END)
        due = self.due()
        return out, complete if due is None else min(complete, due)

    @abstractmethod
    def due(self) -> int | None:
        """Return the watermark at which the next output is due."""

    @abstractmethod
    def _report(self, new: pa.Table, arrivals: Places, ended: bool) -> pa.Table | None:
        """Update the state, and return the output that is due."""

    def _taken(self, table: pa.Table) -> tuple[pa.Table, Places]:
        """Return the columns of new rows that are stored, and the arrival times."""
        found = []
        for outcome in self._evaluate(table):
            if isinstance(outcome, ExpressionError):
                raise outcome
            found.append(outcome)
        arrivals: Places = numbers(table.column(ARRIVAL).combine_chunks())
        ts, seqs = table.column(TS), table.column(SEQ)
        keys, values = found[: len(self._keys)], found[len(self._keys) :]
        numbered = self.state.keys.number(distinct_keys(keys, len(ts)), keys)
        selected = pa.repeat(pa.scalar(True), len(ts))
        if len(values) > len(self._attributes):
            selected = values.pop().fill_null(False)
        columns = {KEY: pa.array(numbered), TIME: ts, NUMBERED: seqs, SELECTED: selected}
        columns |= {n: shown_values(c) for n, c in zip(self._attributes, values, strict=True)}
        return pa.table(columns).combine_chunks(), arrivals

    def _content(self, new: pa.Table) -> Content:
        table = pa.concat_tables([*(piece.table for piece in self.state.pieces), new]).combine_chunks()
        keys: Numbers = numbers(table.column(KEY).combine_chunks())
        times: Places = numbers(table.column(TIME).combine_chunks())
        order, partitions = self._sorted(keys, times)
        ts = times[order]
        places = pa.array(order)
        selected: Mask = table.column(SELECTED).take(places).to_numpy()
        values = [table.column(name).combine_chunks().take(places) for name in self._attributes]
        runs = runs_of(partitions, ts, selected, values)
        return Content(table, order, partitions, ts, selected, values, runs)

    def _sorted(self, keys: Numbers, times: Places) -> tuple[Places, Numbers]:  # noqa: ARG002
        """Return the row positions by partition and time, and their partitions.

        The input is in order of time.
        """
        order, partitions, _ = by_partition(keys, max(len(self.state.keys), 1))
        return order, partitions

    def _keep_recent(self, new: pa.Table, content: Content, recent: Mask) -> None:
        """Keep the rows that later windows may show.

        Older rows may stay for a while.
        """
        self.state.pieces = kept(self.state.pieces, new, content.in_table(recent))

    def _keep_changes(self, new: pa.Table, content: Content) -> None:
        """Keep only the rows that unbounded windows show.

        A row with an empty period must not be kept without its successor, because it would seem to hold
        until the next row.
        """
        self._keep(new, content, content.changes())

    def _keep(self, new: pa.Table, content: Content, needed: Mask) -> None:
        self.state.pieces = kept(self.state.pieces, new, content.in_table(needed), exactly=True)

    def _is_change(self, begins: Places, ends: Places, now: Places | int) -> Mask:
        """Return a mask of runs that changed since the previous slide (L8).

        A change is the begin or the end of a run.
        """
        before = now - self._slide
        changed: Mask = (begins >= before) | ((ends >= before) & (ends < now))
        return changed

    def _output(self, content: Content, spans: RunSpans, seqs: Places, arrivals: Places) -> pa.Table:
        """Return the runs that windows show. `seqs` and `arrivals` are per window."""
        found = shown(content.runs, spans)
        if self._changes:
            told = np.flatnonzero(self._is_change(found.begins, found.ends, spans.ends[found.windows]))
            found = Shown(*(column[told] for column in found))
        keys = self.state.keys.values(content.partitions[found.places]) if self._heads else []
        heads = [keys[place] for place in self._heads]
        places = pa.array(found.places)
        values = [column.take(places) for column in content.values]
        times = [pa.array(ends).cast(pa.timestamp("us", tz="UTC")) for ends in (found.begins, found.ends)]
        period = pa.StructArray.from_arrays(times, names=["begin", "end"])
        system = [pa.array(of_windows[found.windows]) for of_windows in (spans.ends, seqs, arrivals)]
        flags = [pa.array(found.ends == spans.ends[found.windows])] if self._tells_open else []
        return pa.table([*system, *heads, *values, period, *flags], names=[TS, SEQ, ARRIVAL, *self._names])
