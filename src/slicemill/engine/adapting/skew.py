"""Heavy keys of a join whose rows are spread by key: which they are, and since when (S37-S38).

Cells tell with each run what their keys take. When enough is known, keys that make a cell much slower than
the mean are spread over all cells, and those that have become light go home again. Rows that are there by
then stay where they are: what is decided holds for later timestamps than any that has been read.

Who writes rows to a log tells which keys many of them have, before any cell reads them. So what a run over
many rows will take is foreseen, and its heavy keys are spread from its first row on:

    rows of a key, on either side ──► pairs with those that are in the window by then ──► work of its cell

Selections may drop rows before they are joined: what is foreseen counts as much as it proved to be true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TypeAlias

from slicemill.esl.types.query import FrameUnit, Window
from slicemill.operators.cell import HeavyKey
from slicemill.operators.join.heavy import ROW_WORK, KeySample, KeyWork
from slicemill.time import END

_MOST_KEYS = 64


@dataclass(frozen=True, slots=True)
class SkewLimits:
    """When keys are heavy: a cell may have so many times the work of the mean; a key that takes so little of
    the mean is light again.

    Decided when so much work is known, in comparisons: some hundredths of a second of each cell. What lies
    ahead of a single run is worth a decision sooner: it will be done, and all at once. What a row takes
    beside being compared is in comparisons, too.
    """

    uneven: float = 1.5
    light: float = 0.25
    enough_work: float = 1_000_000
    enough_ahead: float = 250_000
    row_work: float = ROW_WORK


LIMITS = SkewLimits()


@dataclass(frozen=True, slots=True)
class SkewedSide:
    """The logs that an input of a join comes from, and its window, by time or by rows; None: without end."""

    logs: tuple[str, ...]
    window_us: int | None = None
    window_rows: int | None = None

    @staticmethod
    def of(logs: tuple[str, ...], window: Window) -> SkewedSide:
        counts = window.frame is FrameUnit.ROWS
        return SkewedSide(logs, None if counts else window.extent, window.extent if counts else None)

    def met(self, sample: KeySample, rows: float) -> float:
        """How many of a key's rows in a sample a row of the other side meets."""
        if self.window_us is not None and sample.span_us > self.window_us:
            rows *= self.window_us / sample.span_us
        if self.window_rows is not None and sample.rows > self.window_rows:
            rows *= self.window_rows / sample.rows
        return rows


def work_ahead(
    sides: Sequence[SkewedSide], samples: Mapping[str, Sequence[KeySample]], cells: int
) -> list[KeyWork]:
    """What each cell will have to do with rows that were sampled, by key where a key has many of them.

    Pairs of other keys are left out, and so are those with rows that came before.
    """
    counts: list[dict[int, float]] = [{} for _ in sides]
    met: list[dict[int, float]] = [{} for _ in sides]
    home: dict[int, int] = {}
    total = 0
    for number, side in enumerate(sides):
        for sample in (sample for log in side.logs for sample in samples.get(log, ())):
            total += sample.rows
            for key, (cell, count) in sample.keys.items():
                home[key] = cell
                counts[number][key] = counts[number].get(key, 0.0) + count
                met[number][key] = met[number].get(key, 0.0) + side.met(sample, count)
    keys: list[dict[int, tuple[int, int]]] = [{} for _ in range(cells)]
    for key, cell in home.items():
        here, there = ([own.get(key, 0.0) for own in by_side] for by_side in (counts, met))
        pairs = sum(here) * sum(there) - sum(map(float.__mul__, here, there))
        keys[cell][key] = (round(sum(here)), round(pairs))
    sums = [[sum(column) for column in zip(*own.values(), strict=True)] or [0, 0] for own in keys]
    others = max(0, total - sum(rows for rows, _ in sums)) // cells
    return [KeyWork(others + rows, pairs, own) for (rows, pairs), own in zip(sums, keys, strict=True)]


# Rows and pairs, by key and cell.
_WorkByKey: TypeAlias = dict[int, list[tuple[float, float]]]


class HeavyKeys:
    """The heavy keys of a unit; `longest_us` is its longest window, None if one never ends."""

    def __init__(
        self,
        cells: int,
        longest_us: int | None,
        known: Iterable[Sequence[int]] = (),
        sides: Sequence[SkewedSide] = (),
    ) -> None:
        self.keys = tuple(HeavyKey(*fields) for fields in known)
        if longest_us is not None:
            # A query with a longer window has come while keys fade: it, too, looks into all cells.
            self.keys = tuple(
                replace(key, over=max(key.over, key.fades + longest_us)) if key.fades < END else key
                for key in self.keys
            )
        self._limits = LIMITS
        self._longest_us = longest_us
        self._cells = cells
        self._work = [0.0] * cells
        self._by_key: _WorkByKey = {}
        self._sides = sides
        self._samples: dict[str, list[KeySample]] = {}  # by log, of rows that no run has taken
        self._foreseen, self._found = 0.0, 0.0  # pairs

    def plain(self) -> list[tuple[int, ...]]:
        """What the journal holds of them."""
        return [astuple(key) for key in self.keys]

    def add(self, cell: int, found: KeyWork) -> None:
        """Count what a cell had to do in a run."""
        self._work[cell] += self._weight(found.rows, found.pairs)
        self._found += found.pairs
        for key, (rows, pairs) in found.keys.items():
            known = self._by_key.setdefault(key, [(0.0, 0.0)] * self._cells)
            known[cell] = (known[cell][0] + rows, known[cell][1] + pairs)

    def arrived(self, log: str, sample: KeySample) -> None:
        """Rows were written to a log that a later run will take."""
        self._samples.setdefault(log, []).append(sample)

    def foresee(self, next_ts: int) -> None:
        """Which keys will be heavy in the run to come, from a time on that is later than all rows so far."""
        samples, self._samples = self._samples, {}
        ahead = work_ahead(self._sides, samples, self._cells) if samples else []
        trust = min(1.0, self._found / self._foreseen) if self._foreseen else 1.0
        self._foreseen += sum(work.pairs for work in ahead)
        by_cell = [self._weight(work.rows, trust * work.pairs) for work in ahead]
        if sum(by_cell) < self._limits.enough_ahead * self._cells or next_ts >= END:
            return
        by_key: _WorkByKey = {}
        for cell, work in enumerate(ahead):
            for key, (rows, pairs) in work.keys.items():
                by_key[key] = [(0.0, 0.0)] * self._cells
                by_key[key][cell] = (rows, trust * pairs)
        before = self.keys
        self._spread(by_cell, by_key, next_ts)
        if self.keys != before:
            self._work, self._by_key = [0.0] * self._cells, {}

    def decide(self, next_ts: int) -> bool:
        """Which keys are heavy, or light again, from a time on that is later than all rows so far."""
        if sum(self._work) < self._limits.enough_work * self._cells or next_ts >= END:
            return False
        before = self.keys
        self._lighten(next_ts)
        self._spread(self._work, self._by_key, next_ts)
        self._foreseen, self._found = self._foreseen / 2, self._found / 2
        if self.keys != before:
            # What was seen so far says little of how things are then.
            self._work, self._by_key = [0.0] * self._cells, {}
            return True
        # What was known counts half from now on, and what hardly counts is forgotten.
        self._work = [work / 2 for work in self._work]
        halves = {
            key: [(rows / 2, pairs / 2) for rows, pairs in cells] for key, cells in self._by_key.items()
        }
        self._by_key = {key: cells for key, cells in halves.items() if _total(cells)[0] >= 1}
        return False

    def forget(self, reached: int) -> bool:
        """Keys that were heavy long ago, when no replay will read a row from before this time."""
        gone = [key for key in self.keys if key.over <= reached]
        for key in gone:
            # Other cells have told of it as well: which one is its home is to be seen.
            self._by_key.pop(key.hash, None)
        self.keys = tuple(key for key in self.keys if key not in gone)
        return bool(gone)

    def _lighten(self, next_ts: int) -> None:
        mean = sum(self._work) / self._cells
        if self._longest_us is None:
            return
        for place, key in enumerate(self.keys):
            if (
                key.fades == END
                and self._weight(*_total(self._by_key.get(key.hash, []))) < self._limits.light * mean
            ):
                fading = replace(key, fades=next_ts, over=next_ts + self._longest_us)
                self.keys = (*self.keys[:place], fading, *self.keys[place + 1 :])

    def _spread(self, by_cell: Sequence[float], by_key: _WorkByKey, next_ts: int) -> None:
        """Take the heaviest keys from the cells that have too much, while that makes things more even."""
        work = list(by_cell)
        light: dict[int, dict[int, tuple[float, float]]] = {cell: {} for cell in range(self._cells)}
        heavy = {key.hash for key in self.keys if key.fades == END}
        for key, cells in by_key.items():
            if key in heavy:
                # It is uneven as long as rows from before are at its home.
                total = sum(self._weight(*one) for one in cells)
                work = [
                    own + total / self._cells - self._weight(*one)
                    for own, one in zip(work, cells, strict=True)
                ]
            elif (home := self._home(key, cells)) is not None:
                light[home][key] = _total(cells)
        while len(self.keys) < _MOST_KEYS:
            slowest = max(range(self._cells), key=work.__getitem__)
            keys = light[slowest]
            if work[slowest] <= self._limits.uneven * sum(work) / self._cells or not keys:
                return
            heaviest = max(keys, key=lambda key: self._weight(*keys[key]))
            rows, pairs = keys.pop(heaviest)
            everywhere = self._weight(rows, pairs / self._cells)
            if everywhere > self._weight(rows, pairs) / 2:
                return
            work = [own + everywhere for own in work]
            work[slowest] -= self._weight(rows, pairs)
            self._begin(heaviest, slowest, next_ts)

    def _home(self, key: int, cells: Sequence[tuple[float, float]]) -> int | None:
        """The cell that a key's rows go to when it is light; of a listed one, all cells have told."""
        listed = next((one.home for one in self.keys if one.hash == key), None)
        if listed is not None:
            return listed
        told = [cell for cell, (rows, _) in enumerate(cells) if rows]
        return told[0] if len(told) == 1 else None

    def _weight(self, rows: float, pairs: float) -> float:
        return rows * self._limits.row_work + pairs

    def _begin(self, hash_: int, home: int, next_ts: int) -> None:
        # One that fades is heavy again: its rows went to all cells all the time.
        ended = (replace(key, over=min(key.over, next_ts)) if key.hash == hash_ else key for key in self.keys)
        self.keys = (*ended, HeavyKey(hash_, home, next_ts))


def _total(cells: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Of a key: all cells are given the rows of a heavy one, and each finds some of its pairs."""
    return max((rows for rows, _ in cells), default=0.0), sum(pairs for _, pairs in cells)
