"""Skew: handling of heavy keys (with very many rows) in a join that is partitioned by key (S37-S38).

After each run, subtasks report the work per key. When enough work is known, a key that makes its subtask much
slower than the mean becomes heavy, and its rows go to all subtasks from then on. A key that has become light
again goes only to its home subtask. Stored rows do not move, because a decision applies only to timestamps
after all rows read so far.

The writer of a log reports frequent keys before any subtask reads the rows. So the work of a run over many
rows can be predicted, and the rows of its heavy keys go to all subtasks from the first row on:

    rows of a key, of both inputs ──► pairs with the rows that are in the window by then ──► work of its
    subtask

Filters may drop rows before the join. So predictions are scaled by the accuracy of earlier predictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TypeAlias

from slicemill.catalog.queries import FrameUnit, Window
from slicemill.operators.join.heavy_keys import ROW_WORK, KeySample, KeyWork
from slicemill.operators.subtask import HeavyKey
from slicemill.time import END

_MOST_KEYS = 64


@dataclass(frozen=True, slots=True)
class SkewLimits:
    """Thresholds at which a key becomes heavy (its rows go to all subtasks) or light again.

    A key becomes heavy if its subtask has more than `uneven` times the mean work. A heavy key becomes light
    if its work is below `light` times the mean. A decision needs `enough_work` per subtask, in comparisons;
    this is some hundredths of a second of work. For a predicted run, `enough_ahead` suffices, because that
    work is certain. `row_work` is the cost of a row, in comparisons.
    """

    uneven: float = 1.5
    light: float = 0.25
    enough_work: float = 1_000_000
    enough_ahead: float = 250_000
    row_work: float = ROW_WORK


LIMITS = SkewLimits()


@dataclass(frozen=True, slots=True)
class SkewedSide:
    """Input of a join: the logs from which its rows come, and its window.

    A window without a length is unbounded.
    """

    logs: tuple[str, ...]
    window_us: int | None = None
    window_rows: int | None = None

    @staticmethod
    def of(logs: tuple[str, ...], window: Window) -> SkewedSide:
        counts = window.frame is FrameUnit.ROWS
        return SkewedSide(logs, None if counts else window.extent, window.extent if counts else None)

    def met(self, sample: KeySample, rows: float) -> float:
        """Return the mean number of a key's sampled `rows` that are in the window at the same time.

        A row of the other input joins with this number of rows.
        """
        if self.window_us is not None and sample.span_us > self.window_us:
            rows *= self.window_us / sample.span_us
        if self.window_rows is not None and sample.rows > self.window_rows:
            rows *= self.window_rows / sample.rows
        return rows


def predict_work(
    sides: Sequence[SkewedSide], samples: Mapping[str, Sequence[KeySample]], subtasks: int
) -> list[KeyWork]:
    """Predict the work that sampled, not yet joined rows cause in each subtask.

    Only pairs of frequent keys among these rows are counted. Pairs of other keys, and pairs with earlier
    rows, are ignored.
    """
    counts: list[dict[int, float]] = [{} for _ in sides]
    met: list[dict[int, float]] = [{} for _ in sides]
    home: dict[int, int] = {}
    total = 0
    for number, side in enumerate(sides):
        for sample in (sample for log in side.logs for sample in samples.get(log, ())):
            total += sample.rows
            for key, (subtask, count) in sample.keys.items():
                home[key] = subtask
                counts[number][key] = counts[number].get(key, 0.0) + count
                met[number][key] = met[number].get(key, 0.0) + side.met(sample, count)
    keys: list[dict[int, tuple[int, int]]] = [{} for _ in range(subtasks)]
    for key, subtask in home.items():
        here, there = ([own.get(key, 0.0) for own in by_side] for by_side in (counts, met))
        pairs = sum(here) * sum(there) - sum(map(float.__mul__, here, there))
        keys[subtask][key] = (round(sum(here)), round(pairs))
    sums = [[sum(column) for column in zip(*own.values(), strict=True)] or [0, 0] for own in keys]
    others = max(0, total - sum(rows for rows, _ in sums)) // subtasks
    return [KeyWork(others + rows, pairs, own) for (rows, pairs), own in zip(sums, keys, strict=True)]


# hash of a key -> (rows, pairs of compared rows) of each subtask
_WorkByKey: TypeAlias = dict[int, list[tuple[float, float]]]


class HeavyKeys:
    """Heavy keys of a task: keys with so many rows that their rows go to all subtasks.

    `longest_us` is the longest window of the task, or None if a window is unbounded.
    """

    def __init__(
        self,
        subtasks: int,
        longest_us: int | None,
        known: Iterable[Sequence[int]] = (),
        sides: Sequence[SkewedSide] = (),
    ) -> None:
        self.keys = tuple(HeavyKey(*fields) for fields in known)
        if longest_us is not None:
            # While a key fades (is heavy no longer, but has rows in all subtasks), windows may grow.
            # A new query with a longer window reads rows of the key in all subtasks.
            self.keys = tuple(
                replace(key, over=max(key.over, key.fades + longest_us)) if key.fades < END else key
                for key in self.keys
            )
        self._limits = LIMITS
        self._longest_us = longest_us
        self._subtasks = subtasks
        self._work = [0.0] * subtasks
        self._by_key: _WorkByKey = {}
        self._sides = sides
        self._samples: dict[str, list[KeySample]] = {}  # log -> key samples of unread rows
        self._foreseen, self._found = 0.0, 0.0  # predicted and actual number of compared row pairs

    def plain(self) -> list[tuple[int, ...]]:
        """Return the heavy keys in the form in which the journal stores them."""
        return [astuple(key) for key in self.keys]

    def add(self, subtask: int, found: KeyWork) -> None:
        """Add the work per key that a subtask reports for a run."""
        self._work[subtask] += self._weight(found.rows, found.pairs)
        self._found += found.pairs
        for key, (rows, pairs) in found.keys.items():
            known = self._by_key.setdefault(key, [(0.0, 0.0)] * self._subtasks)
            known[subtask] = (known[subtask][0] + rows, known[subtask][1] + pairs)

    def arrived(self, log: str, sample: KeySample) -> None:
        """Add a sample of the keys of new rows, which a later run will read."""
        self._samples.setdefault(log, []).append(sample)

    def predict(self, next_ts: int) -> None:
        """Predict the keys that overload a subtask in the next run, and add them to the heavy keys.

        `next_ts` is later than all rows read so far.
        """
        samples, self._samples = self._samples, {}
        ahead = predict_work(self._sides, samples, self._subtasks) if samples else []
        trust = min(1.0, self._found / self._foreseen) if self._foreseen else 1.0
        self._foreseen += sum(work.pairs for work in ahead)
        by_subtask = [self._weight(work.rows, trust * work.pairs) for work in ahead]
        if sum(by_subtask) < self._limits.enough_ahead * self._subtasks or next_ts >= END:
            return
        by_key: _WorkByKey = {}
        for subtask, work in enumerate(ahead):
            for key, (rows, pairs) in work.keys.items():
                by_key[key] = [(0.0, 0.0)] * self._subtasks
                by_key[key][subtask] = (rows, trust * pairs)
        before = self.keys
        self._spread(by_subtask, by_key, next_ts)
        if self.keys != before:
            self._work, self._by_key = [0.0] * self._subtasks, {}

    def decide(self, next_ts: int) -> bool:
        """Add keys that overload a subtask to the heavy keys, and let keys with little work fade.

        Return True if any key has changed. The change applies to rows from `next_ts` on. `next_ts` is later
        than all rows read so far.
        """
        if sum(self._work) < self._limits.enough_work * self._subtasks or next_ts >= END:
            return False
        before = self.keys
        self._lighten(next_ts)
        self._spread(self._work, self._by_key, next_ts)
        self._foreseen, self._found = self._foreseen / 2, self._found / 2
        if self.keys != before:
            # When the heavy keys have changed, the work measured before is no longer valid.
            self._work, self._by_key = [0.0] * self._subtasks, {}
            return True
        # All counts are halved, and small counts are dropped (exponential decay).
        self._work = [work / 2 for work in self._work]
        halves = {
            key: [(rows / 2, pairs / 2) for rows, pairs in subtasks] for key, subtasks in self._by_key.items()
        }
        self._by_key = {key: subtasks for key, subtasks in halves.items() if _total(subtasks)[0] >= 1}
        return False

    def forget(self, reached: int) -> bool:
        """Drop former heavy keys whose rows had left all windows by `reached`. No replay needs them.

        Return True if a key was dropped.
        """
        gone = [key for key in self.keys if key.over <= reached]
        for key in gone:
            # Several subtasks have reported the key, so its own subtask is unknown until the next report.
            self._by_key.pop(key.hash, None)
        self.keys = tuple(key for key in self.keys if key not in gone)
        return bool(gone)

    def _lighten(self, next_ts: int) -> None:
        mean = sum(self._work) / self._subtasks
        if self._longest_us is None:
            return
        for index, key in enumerate(self.keys):
            if (
                key.fades == END
                and self._weight(*_total(self._by_key.get(key.hash, []))) < self._limits.light * mean
            ):
                fading = replace(key, fades=next_ts, over=next_ts + self._longest_us)
                self.keys = (*self.keys[:index], fading, *self.keys[index + 1 :])

    def _spread(self, by_subtask: Sequence[float], by_key: _WorkByKey, next_ts: int) -> None:
        """Spread keys of overloaded subtasks over all subtasks while that improves the balance."""
        work = list(by_subtask)
        light: dict[int, dict[int, tuple[float, float]]] = {subtask: {} for subtask in range(self._subtasks)}
        heavy = {key.hash for key in self.keys if key.fades == END}
        for key, subtasks in by_key.items():
            if key in heavy:
                # The work of a heavy key is assumed to be even over all subtasks.
                # The work is uneven only while earlier rows of the key are stored in its home subtask.
                total = sum(self._weight(*one) for one in subtasks)
                work = [
                    own + total / self._subtasks - self._weight(*one)
                    for own, one in zip(work, subtasks, strict=True)
                ]
            elif (home := self._home(key, subtasks)) is not None:
                light[home][key] = _total(subtasks)
        while len(self.keys) < _MOST_KEYS:
            slowest = max(range(self._subtasks), key=work.__getitem__)
            keys = light[slowest]
            if work[slowest] <= self._limits.uneven * sum(work) / self._subtasks or not keys:
                return
            heaviest = max(keys, key=lambda key: self._weight(*keys[key]))
            rows, pairs = keys.pop(heaviest)
            everywhere = self._weight(rows, pairs / self._subtasks)
            if everywhere > self._weight(rows, pairs) / 2:
                return
            work = [own + everywhere for own in work]
            work[slowest] -= self._weight(rows, pairs)
            self._begin(heaviest, slowest, next_ts)

    def _home(self, key: int, subtasks: Sequence[tuple[float, float]]) -> int | None:
        """Return the home subtask of a key, which gets the key's rows while the key is not heavy.

        Return None if the home subtask is unknown. For a key in `self.keys` all subtasks report work, so the
        home subtask is taken from `self.keys`.
        """
        listed = next((one.home for one in self.keys if one.hash == key), None)
        if listed is not None:
            return listed
        told = [subtask for subtask, (rows, _) in enumerate(subtasks) if rows]
        return told[0] if len(told) == 1 else None

    def _weight(self, rows: float, pairs: float) -> float:
        return rows * self._limits.row_work + pairs

    def _begin(self, hash_: int, home: int, next_ts: int) -> None:
        # If a fading key becomes heavy again, all subtasks have received its rows without interruption.
        ended = (replace(key, over=min(key.over, next_ts)) if key.hash == hash_ else key for key in self.keys)
        self.keys = (*ended, HeavyKey(hash_, home, next_ts))


def _total(subtasks: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the total number of rows, and of compared row pairs, of a key.

    Each subtask has all rows of a heavy key, but only a part of the pairs.
    """
    return max((rows for rows, _ in subtasks), default=0.0), sum(pairs for _, pairs in subtasks)
