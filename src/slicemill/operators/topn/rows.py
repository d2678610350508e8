"""Top-n, row by row.

Each input row emits the changes of the visible rows.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from slicemill.aggregate.definition import comparable
from slicemill.columns.ranking import sort_key
from slicemill.operators.context import StepContext
from slicemill.operators.group_changes.rows import told
from slicemill.operators.row_operator import row_of_expressions
from slicemill.operators.topn.spec import TopN
from slicemill.rows import Row, Timed
from slicemill.storage.objects_by_key import ObjectsByKey


class RankedRow(NamedTuple):
    """Row with its sort key and arrival number."""

    key: tuple[Any, ...]
    arrival: int
    row: Row


@dataclass(slots=True)
class TopRows:
    """Row operator of top-n.

    `partition` and `order` are functions of a row. With `retracts` the first column of a row is its
    operation. Without retractions, rows beyond the limit can never return and are dropped.
    """

    operator: TopN
    partition: Callable[[Row], Row]
    order: Callable[[Row], Row]
    inputs: int = 1
    waits_for_time: bool = False
    _partitions: ObjectsByKey[Row, list[RankedRow]] = field(init=False)
    _arrived: int = 0
    _before: Row | None = None  # update_before row that waits for its update_after

    def __post_init__(self) -> None:
        self._partitions = ObjectsByKey(_plain, self._made)

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        op = tuple_.row[0] if self.operator.retracts else "insert"
        if op == "update_before":
            self._before = tuple_.row
            return ()
        leaves = tuple_.row if op == "delete" else self._before
        comes = None if op == "delete" else tuple_.row
        self._before = None
        shown: dict[Row, list[tuple[RankedRow, Row]]] = {}
        for row in (leaves, comes):
            if row is not None:
                key = comparable(self.partition(row))
                shown.setdefault(key, self._visible(key))
        follows: dict[int, int] = {}  # by arrival number: the row that replaces another one in an update
        if leaves is not None:
            left = self._remove(leaves)
            if comes is not None:
                follows[left.arrival] = self._placed(self._arrived + 1)
        if comes is not None:
            self._insert(comes)
        changes = [change for key, before in shown.items() for change in self._changes(key, before, follows)]
        return [Timed(tuple_.ts, change) for change in changes]

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()

    def kept(self, rows: Sequence[Timed]) -> list[Row]:
        """Return the stored rows of some rows' partitions, in arrival order."""
        keys = dict.fromkeys(comparable(self.partition(timed.row)) for timed in rows)
        entries = [entry for key in keys for entry in self._partitions.get(key) or ()]
        return [entry.row for entry in sorted(entries, key=lambda entry: abs(entry.arrival))]

    def _ranked(self, row: Row, arrival: int) -> RankedRow:
        falls = [falls for _, falls in self.operator.by.order_by]
        return RankedRow(sort_key(self.order(row), falls), self._placed(arrival), row)

    def _placed(self, arrival: int) -> int:
        return -arrival if self.operator.by.latest_first else arrival

    def _insert(self, row: Row) -> None:
        key = comparable(self.partition(row))
        self._arrived += 1
        kept = self._partitions.change(key)
        if kept is None:
            kept = []
            self._partitions.put(key, kept)
        insort(kept, self._ranked(row, self._arrived), key=lambda entry: entry[:2])
        if not self.operator.retracts:
            del kept[len(self._ranks(kept)) :]

    def _remove(self, row: Row) -> RankedRow:
        key, wanted = comparable(self.partition(row)), comparable(row[1:])
        kept = self._partitions.change(key)
        assert kept is not None, "a row that leaves has arrived"
        found = [place for place, entry in enumerate(kept) if comparable(entry.row[1:]) == wanted]
        # Of equal rows, delete the one that arrived first.
        left = kept.pop(min(found, key=lambda place: abs(kept[place].arrival)))
        if not kept:
            self._partitions.remove(key)
        return left

    def _ranks(self, kept: Sequence[RankedRow]) -> list[int]:
        """Return the ranks of sorted rows, up to the limit."""
        ranks: list[int] = []
        function, limit = self.operator.by.function, self.operator.limit
        for place, entry in enumerate(kept):
            rank = place + 1
            if function != "row_number" and place:
                same = entry.key == kept[place - 1].key
                following = ranks[-1] + 1 if function == "dense_rank" else rank
                rank = ranks[-1] if same else following
            if rank > limit:
                break
            ranks.append(rank)
        return ranks

    def _visible(self, key: Row) -> list[tuple[RankedRow, Row]]:
        """Return the rows of a partition within the limit, as emitted."""
        kept = self._partitions.get(key) or []
        first = 1 if self.operator.retracts else 0
        return [
            (entry, (*entry.row[first:], rank) if self.operator.shown is not None else entry.row[first:])
            for entry, rank in zip(kept, self._ranks(kept), strict=False)
        ]

    def _changes(
        self, key: Row, before: list[tuple[RankedRow, Row]], follows: Mapping[int, int]
    ) -> list[Row]:
        now = self._visible(key)
        if self.operator.by_place:
            # The position is the key: a row at the position of another one is an update.
            pairs = zip_longest((row for _, row in before), (row for _, row in now))
            return [change for pair in pairs for change in told(*pair)]
        were = {follows.get(entry.arrival, entry.arrival): row for entry, row in before}
        are = {entry.arrival: row for entry, row in now}
        gone = [change for arrival, row in were.items() if arrival not in are for change in told(row, None)]
        moved = [
            change for arrival, row in were.items() if arrival in are for change in told(row, are[arrival])
        ]
        new = [change for arrival, row in are.items() if arrival not in were for change in told(None, row)]
        return [*gone, *moved, *new]

    def state(self) -> Any:
        return {"ranked": self._partitions, "arrived": self._arrived, "before": self._before}

    def restore(self, state: Any) -> None:
        self._arrived, self._before = state["arrived"], state["before"]
        if "ranked" in state:
            self._partitions = state["ranked"].opened(_plain, self._made)
        else:  # stored by versions without snapshots by key
            for key, kept in state["partitions"].items():
                self._partitions.put(key, self._made(kept))

    def _made(self, plain: Any) -> list[RankedRow]:
        return [self._ranked(row, arrival) for arrival, row in plain]


def _plain(kept: list[RankedRow]) -> Any:
    return [(abs(entry.arrival), entry.row) for entry in kept]


def top_rows(operator: TopN, context: StepContext) -> TopRows:
    (schema,) = context.schemas
    order = row_of_expressions([expr for expr, _ in operator.by.order_by], schema)
    return TopRows(operator, row_of_expressions(operator.by.partition_by, schema), order)
