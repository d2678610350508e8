"""Changelog operators that store all rows and recompute their results.

The first column of a changelog row is the operation. An update is two consecutive rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from slicemill.aggregates.definition import RowCall, align, base_of, comparable, evaluate, normalize_zeros
from slicemill.columns.order import sort_key
from slicemill.operators.changelog.spec import Emit, JoinChanges, TopN, WindowChanges
from slicemill.operators.window.spec import WindowTop
from slicemill.time import EARLIEST
from slicemill.types import Row, Timed


def difference(before: Row | None, now: Row | None) -> list[Row]:
    """Return the changes that turn one row into another."""
    if before is not None and now is not None:
        if comparable(before) == comparable(now):
            return []
        return [("update_before", *before), ("update_after", *now)]
    return [("delete", *before)] if before is not None else [("insert", *now)] if now is not None else []


class ChangelogOperator(ABC):
    """Base class: receives a change as old row, new row, or both."""

    inputs = 1
    waits_for_time = False

    def __init__(self, changes: bool = True) -> None:
        self._changes = changes
        self._before: Row | None = None

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        if not self._changes:
            return self._at(tuple_.ts, None, tuple_.row)
        op, row = tuple_.row[0], tuple_.row[1:]
        if op == "update_before":
            self._before = row
            return []
        leaves, self._before = row if op == "delete" else self._before, None
        return self._at(tuple_.ts, leaves, None if op == "delete" else row)

    def _at(self, ts: int, leaves: Row | None, comes: Row | None) -> Sequence[Timed]:
        return [Timed(ts, row) for row in self.change(leaves, comes)]

    @abstractmethod
    def change(self, leaves: Row | None, comes: Row | None) -> Iterable[Row]:
        """Return the output rows of a change."""

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()


class SelectChanges(ChangelogOperator):
    """Filters a changelog."""

    def __init__(self, predicate: Callable[[Row], bool]) -> None:
        super().__init__()
        self._predicate = predicate

    def change(self, leaves: Row | None, comes: Row | None) -> Iterable[Row]:
        left, come = (
            row if row is not None and self._predicate(("", *row)) else None for row in (leaves, comes)
        )
        if left is not None and come is not None:
            return [("update_before", *left), ("update_after", *come)]
        return difference(left, come)


class ProjectChanges(ChangelogOperator):
    """Projects a changelog. Changes of dropped columns alone are not emitted."""

    def __init__(self, projection: Callable[[Row], Row]) -> None:
        super().__init__()
        self._projection = projection

    def change(self, leaves: Row | None, comes: Row | None) -> Iterable[Row]:
        left, come = (None if row is None else self._projection(("", *row))[1:] for row in (leaves, comes))
        return difference(left, come)


class GroupChangesOperator(ChangelogOperator):
    """GROUP BY over a changelog or stream.

    `group` and the calls read rows of the input's schema.
    """

    def __init__(
        self, calls: Sequence[RowCall], group: Callable[[Row], Row], grouped: bool, changes: bool
    ) -> None:
        super().__init__(changes)
        self._calls, self._group, self._grouped = calls, group, grouped
        self._rows: dict[Row, list[Row]] = {}
        self._told: dict[Row, Row] = {}

    def begin(self) -> Sequence[Timed]:
        """Return the row of a global aggregate over no rows."""
        if self._grouped or () in self._rows:
            return []
        self._rows[()] = []
        now = self._values((), ())
        if now is None:
            return []
        self._told[()] = now
        return [Timed(EARLIEST, row) for row in difference(None, now)]

    def change(self, leaves: Row | None, comes: Row | None) -> Iterable[Row]:
        touched: dict[Row, Row] = {}
        for row, come in ((leaves, False), (comes, True)):
            if row is None:
                continue
            read = ("", *row) if self._changes else row
            values = self._group(read)
            key = comparable(values)
            touched[key] = normalize_zeros(values)
            there = self._rows.setdefault(key, [])
            if come:
                there.append(read)
            else:
                there.remove(next(one for one in there if comparable(one) == comparable(read)))
        for key, values in touched.items():
            before = self._told.pop(key, None)
            now = self._values(key, before[: len(values)] if before else values)
            if now is not None:
                self._told[key] = now
            yield from difference(before, now)

    def _values(self, key: Row, values: Row) -> Row | None:
        rows = self._rows[key]
        if not rows and self._grouped:
            return None
        if not self._calls:
            return values
        returned = [evaluate(base_of(call.definition), map(call.arguments, rows)) for call in self._calls]
        found = align([call.definition for call in self._calls], returned)
        return values + found[0] if found else None


class DistinctOperator(ChangelogOperator):
    """Emits the first of equal rows."""

    def __init__(self) -> None:
        super().__init__(changes=False)
        self._met: set[Row] = set()

    def change(self, leaves: Row | None, comes: Row | None) -> Iterable[Row]:  # noqa: ARG002
        assert comes is not None
        if comparable(comes) not in self._met:
            self._met.add(comparable(comes))
            yield comes


class TopOperator(ChangelogOperator):
    """Top-N per partition. Sorts and ranks all rows at each change."""

    def __init__(self, top: TopN, partition: Callable[[Row], Row], order: Callable[[Row], Row]) -> None:
        super().__init__(top.retracts)
        self._top, self._partition, self._order = top, partition, order
        self._rows: list[tuple[int, Row]] = []
        self._arrived = 0

    def change(self, leaves: Row | None, comes: Row | None) -> Iterable[Row]:
        read = [None if row is None else ("", *row) if self._changes else row for row in (leaves, comes)]
        keys = list(dict.fromkeys(comparable(self._partition(row)) for row in read if row is not None))
        before = {key: self._visible(key) for key in keys}
        left, came = read
        follows: dict[int, int] = {}
        if left is not None:
            there = next(one for one in self._rows if comparable(one[1]) == comparable(left))
            self._rows.remove(there)
            if came is not None:
                follows[there[0]] = self._arrived + 1
        if came is not None:
            self._arrived += 1
            self._rows.append((self._arrived, came))
        for key in keys:
            yield from self._told(before[key], self._visible(key), follows)

    def _visible(self, key: Row) -> dict[int, Row]:
        """Return a partition's first rows in order, by arrival number.

        Rows include their rank if it is an output column.
        """
        by = self._top.by
        falls = [descending for _, descending in by.order_by]
        rows = [
            (sort_key(self._order(row), falls), -arrival if by.latest_first else arrival, arrival, row)
            for arrival, row in self._rows
            if comparable(self._partition(row)) == key
        ]
        rows.sort(key=lambda one: one[:2])
        found: dict[int, Row] = {}
        for index, (order, _, arrival, row) in enumerate(rows):
            smaller = [other for other, *_ in rows if other < order]
            rank = index + 1
            if by.function == "rank":
                rank = len(smaller) + 1
            elif by.function == "dense_rank":
                rank = sum(1 for at, one in enumerate(smaller) if one not in smaller[:at]) + 1
            if rank <= self._top.limit:
                own = row[1:] if self._changes else row
                found[arrival] = own if self._top.shown is None else (*own, rank)
        return found

    def _told(self, before: dict[int, Row], now: dict[int, Row], follows: dict[int, int]) -> Iterable[Row]:
        top = self._top
        if top.appends:
            yield from (row for arrival, row in now.items() if arrival not in before)
            return
        if top.updates_by_position:
            old, new = list(before.values()), list(now.values())
            for index in range(max(len(old), len(new))):
                left = old[index] if index < len(old) else None
                yield from difference(left, new[index] if index < len(new) else None)
            return
        after = {arrival: follows.get(arrival, arrival) for arrival in before}
        for arrival, row in before.items():
            if after[arrival] not in now:
                yield from difference(row, None)
        for arrival, row in before.items():
            if after[arrival] in now:
                yield from difference(row, now[after[arrival]])
        for arrival, row in now.items():
            if arrival not in after.values():
                yield from difference(None, row)


class EmitOperator:
    """Emits net changes per interval, or the table at the end.

    `key` identifies rows.
    """

    inputs = 1

    def __init__(self, emit: Emit, key: Callable[[Row], Row] | None) -> None:
        self.waits_for_time = emit.every is not None
        self._every, self._key = emit.every, key
        self._waiting: list[Timed] = []
        self._table: list[Row] = []

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        self._waiting.append(tuple_)
        return ()

    def advance(self, ts: int) -> Sequence[Timed]:
        told: list[Timed] = []
        while (end := self.due()) is not None and end <= ts:
            told += self._interval(end)
        return told

    def finish(self) -> Sequence[Timed]:
        if self._every is None:
            last = self._waiting[-1].ts if self._waiting else 0
            return [Timed(last, row[1:]) for row in self._net(self._waiting)]
        told: list[Timed] = []
        while (end := self.due()) is not None:
            told += self._interval(end)
        return told

    def held_from(self) -> int | None:
        return self.due()

    def due(self) -> int | None:
        if self._every is None or not self._waiting:
            return None
        if self._waiting[0].ts == EARLIEST:
            return EARLIEST + 1  # Rows that precede the first tuple have a separate interval.
        return (self._waiting[0].ts // self._every + 1) * self._every

    def _interval(self, end: int) -> list[Timed]:
        now = [change for change in self._waiting if change.ts < end]
        self._waiting = self._waiting[len(now) :]
        return [Timed(EARLIEST if end == EARLIEST + 1 else end, row) for row in self._net(now)]

    def _net(self, changes: Sequence[Timed]) -> list[Row]:
        """Return the net effect of changes, in order of first change.

        Without a key, a row that has returned to its previous state counts as unchanged.
        """
        before = list(self._table)
        touched: dict[Row, Row] = {}
        for change in changes:
            op, row = change.row[0], change.row[1:]
            touched.setdefault(self._identity(row), row)
            if op in ("insert", "update_after"):
                self._table.append(row)
            else:
                self._table.remove(next(r for r in self._table if comparable(r) == comparable(row)))
            if self._key is None and not self._more(self._identity(row), before):
                del touched[self._identity(row)]
        if self._key is not None:
            return [
                told
                for key in touched
                for told in difference(self._find_row(key, before), self._find_row(key, self._table))
            ]
        net = {key: self._more(key, before) for key in touched}
        deleted = [("delete", *touched[key]) for key, count in net.items() for _ in range(-count)]
        return deleted + [("insert", *touched[key]) for key, count in net.items() for _ in range(count)]

    def _identity(self, row: Row) -> Row:
        return comparable(row if self._key is None else self._key(("", *row)))

    def _find_row(self, key: Row, table: list[Row]) -> Row | None:
        return next((row for row in table if self._identity(row) == key), None)

    def _more(self, key: Row, before: list[Row]) -> int:
        """Return the increase in the number of rows with this key."""
        now, then = (sum(self._identity(row) == key for row in table) for table in (self._table, before))
        return now - then


class WindowTopOperator:
    """Top-N per window: ranks the rows of each timestamp by partition."""

    inputs = 1
    waits_for_time = True

    def __init__(self, top: WindowTop, partition: Callable[[Row], Row], order: Callable[[Row], Row]) -> None:
        self._top, self._partition, self._order = top, partition, order
        self._waiting: list[Timed] = []

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        self._waiting.append(tuple_)
        return ()

    def advance(self, ts: int) -> Sequence[Timed]:
        return self._before(ts)

    def finish(self) -> Sequence[Timed]:
        return self._before(None)

    def held_from(self) -> int | None:
        return self._waiting[0].ts if self._waiting else None

    def due(self) -> int | None:
        return self._waiting[0].ts + 1 if self._waiting else None

    def _before(self, ts: int | None) -> list[Timed]:
        told: list[Timed] = []
        while self._waiting and (ts is None or self._waiting[0].ts < ts):
            window = [one for one in self._waiting if one.ts == self._waiting[0].ts]
            self._waiting = self._waiting[len(window) :]
            partitions: dict[Row, list[Timed]] = {}
            for one in window:
                partitions.setdefault(comparable(self._partition(one.row)), []).append(one)
            for rows in partitions.values():
                told += self._first(rows)
        return told

    def _first(self, rows: list[Timed]) -> list[Timed]:
        by = self._top.by
        falls = [descending for _, descending in by.order_by]
        if by.latest_first:
            rows.reverse()
        rows.sort(key=lambda one: sort_key(self._order(one.row), falls))
        keys = [sort_key(self._order(one.row), falls) for one in rows]
        told: list[Timed] = []
        for index, (one, key) in enumerate(zip(rows, keys, strict=True)):
            rank = index + 1
            if by.function == "rank":
                rank = keys.index(key) + 1
            elif by.function == "dense_rank":
                before = keys[: keys.index(key)]
                rank = sum(1 for at, other in enumerate(before) if other not in before[:at]) + 1
            if self._top.limit is None or rank <= self._top.limit:
                told.append(one if self._top.shown is None else Timed(one.ts, (*one.row, rank)))
        return told


class JoinChangesOperator:
    """Join of changelogs. Computes the whole join again at each change."""

    inputs = 2
    waits_for_time = True

    def __init__(self, join: JoinChanges, matches: Callable[[Row], bool], widths: tuple[int, int]) -> None:
        self._join, self._matches, self._widths = join, matches, widths
        self._rows: tuple[dict[int, Row], dict[int, Row]] = ({}, {})
        self._before: list[Row | None] = [None, None]
        self._arrived = 0

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        op, row = (tuple_.row[0], tuple_.row[1:]) if self._join.retracts[port] else ("insert", tuple_.row)
        if op == "update_before":
            self._before[port] = row
            return ()
        was = self._joined()
        self._change(port, row if op == "delete" else self._before[port], None if op == "delete" else row)
        self._before[port] = None
        now = self._joined()
        gone, stays, new = was.keys() - now.keys(), was.keys() & now.keys(), now.keys() - was.keys()
        told = [row for pair in sorted(gone) for row in difference(was[pair], None)]
        told += [row for pair in sorted(stays) for row in difference(was[pair], now[pair])]
        told += [row for pair in sorted(new) for row in difference(None, now[pair])]
        return [Timed(tuple_.ts, row) for row in told]

    def _change(self, port: int, leaves: Row | None, comes: Row | None) -> None:
        rows = self._rows[port]
        number = None
        if leaves is not None:
            number = min(n for n, row in rows.items() if comparable(row) == comparable(leaves))
            del rows[number]
        if comes is not None:
            if number is None:
                self._arrived += 1
                number = self._arrived
            rows[number] = comes

    def _joined(self) -> dict[tuple[int, int], Row]:
        left, right = self._rows
        found = {(a, b): left[a] + right[b] for a in left for b in right if self._matches(left[a] + right[b])}
        if 0 in self._join.kind.outer_inputs:
            met = {a for a, _ in found}
            found |= {(a, 0): row + (None,) * self._widths[1] for a, row in left.items() if a not in met}
        if 1 in self._join.kind.outer_inputs:
            met = {b for _, b in found}
            found |= {(0, b): (None,) * self._widths[0] + row for b, row in right.items() if b not in met}
        return found

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()


class WindowChangesOperator:
    """Windows with early and late results, recomputed from all tuples."""

    inputs = 1
    waits_for_time = True

    def __init__(
        self,
        windows: WindowChanges,
        calls: Sequence[RowCall],
        group: Callable[[Row], Row],
        time: Callable[[Row], int] | None,
    ) -> None:
        self._windows, self._calls, self._group, self._time = windows, calls, group, time
        self._held: dict[int, dict[Row, list[Row]]] = {}
        self._told: dict[tuple[int, Row], Row] = {}
        self._waiting: list[tuple[int, int, Row]] = []  # time of arrival, window and group

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        windows, now = self._windows, tuple_.ts
        ts = now if self._time is None else min(self._time(tuple_.row), now)
        key = comparable(self._group(tuple_.row))
        told: list[Timed] = []
        for end in windows.ends(ts):
            if windows.late is not None and end + windows.late.within_us <= now:
                continue
            self._held.setdefault(end, {}).setdefault(key, []).append(tuple_.row)
            if end <= now:
                told += self._changes(now, end, key)
            else:
                self._waiting.append((now, end, key))
        return told

    def advance(self, ts: int) -> Sequence[Timed]:
        told: list[Timed] = []
        while (moment := self.due()) is not None and moment <= ts:
            told += self._at(moment)
        return told

    def finish(self) -> Sequence[Timed]:
        told: list[Timed] = []
        while (moment := self.due()) is not None:
            told += self._at(moment)
        return told

    def held_from(self) -> int | None:
        return self.due()

    def due(self) -> int | None:
        every = self._windows.every_us
        ends = [end for _, end, _ in self._waiting]
        early = [(came // every + 1) * every for came, _, _ in self._waiting] if every is not None else []
        return min((*ends, *early), default=None)

    def _at(self, moment: int) -> list[Timed]:
        every = self._windows.every_us
        early = every is not None and moment % every == 0
        ready = [one for one in self._waiting if early or one[1] == moment]
        self._waiting = [one for one in self._waiting if one not in ready]
        entries = dict.fromkeys((end, key) for _, end, key in ready)
        return [
            change
            for end in sorted({end for end, _ in entries})
            for other, key in entries
            if other == end
            for change in self._changes(moment, end, key)
        ]

    def _changes(self, moment: int, end: int, key: Row) -> list[Timed]:
        rows = self._held[end][key]
        returned = [evaluate(base_of(call.definition), map(call.arguments, rows)) for call in self._calls]
        found = align([call.definition for call in self._calls], returned)
        bounds = (self._windows.start(end), end)
        now = normalize_zeros(self._group(rows[0])) + found[0] + bounds if found else None
        before = self._told.pop((end, key), None)
        if now is not None:
            self._told[end, key] = now
        return [Timed(moment, row) for row in difference(before, now)]
