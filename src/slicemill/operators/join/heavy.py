"""Heavy keys: rows of a key that one cell cannot take alone are spread over all, as by time (S37-S38).

    rows of the key, by time      since              fades               over
    go to                  home     │  all cells        │  all cells        │  home
    are stored at          home     │  one cell each,   │  home             │  home
                                    │  by their stripe  │                   │

Every pair is found once, where its older row is stored: from `since` on a row looks into all cells, until all
rows that lie elsewhere have left the longest window. Rows that wait come in a later run and are still of the
time that they are of, so what becomes of a row goes by its timestamp alone, in replays too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slicemill.columns.cells import stripes_of
from slicemill.operators.cell import Cell, HeavyKey
from slicemill.operators.join.arrays import Hashes, Times

Mask = NDArray[np.bool_]

# A key with less of a run's work is not told of, nor are more keys than so many.
_TOLD_SHARE, _TOLD_KEYS = 1 / 64, 16
# Of a sample, so many rows of a key are needed: fewer come together by chance.
_TOLD_ROWS = 4
# What a row takes beside being compared, in comparisons: it is read, hashed, put in order and kept.
ROW_WORK = 32


def everywhere(heavy: Iterable[HeavyKey], hashes: Hashes, times: Times) -> Mask:
    """Which rows go to all cells."""
    found = np.zeros(len(hashes), np.bool_)
    for key in heavy:
        found |= (hashes == np.uint64(key.hash)) & (times >= key.since) & (times < key.over)
    return found


def stored_here(cell: Cell, heavy: Iterable[HeavyKey], hashes: Hashes, times: Times, seqs: Times) -> Mask:
    """Which of the rows that a cell is given it stores."""
    if cell.by_time:
        return np.asarray(stripes_of(seqs, cell.count) == cell.number)
    mine = np.ones(len(hashes), np.bool_)
    for key in heavy:
        rows = np.flatnonzero((hashes == np.uint64(key.hash)) & (times >= key.since) & (times < key.over))
        spread = stripes_of(seqs[rows], cell.count) == cell.number
        mine[rows] = np.where(times[rows] < key.fades, spread, cell.number == key.home)
    return mine


@dataclass(frozen=True, slots=True)
class KeyWork:
    """What a join had to do in a run: rows that came and pairs that were compared, in all and by the hash of
    the key, for those keys that took most."""

    rows: int = 0
    pairs: int = 0
    keys: Mapping[int, tuple[int, int]] = field(default_factory=dict)


NO_WORK = KeyWork()


@dataclass(frozen=True, slots=True)
class KeySample:
    """Rows that were written to a log, the time that they span, and of the keys that many of a sample have:
    by hash, the cell that they go to and how many of all rows are theirs, as far as the sample tells."""

    rows: int
    span_us: int
    keys: Mapping[int, tuple[int, float]] = field(default_factory=dict)


def key_sample(
    rows: int, span_us: int, hashes: Hashes, valid: Mask | None, cells: NDArray[np.integer]
) -> KeySample:
    """What is told of so many rows, by the keys of a sample; those that are NULL meet nobody."""
    taken = len(hashes)
    if valid is not None:
        hashes, cells = hashes[valid], cells[valid]
    distinct, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    most = np.argsort(counts)[-_TOLD_KEYS:]
    told = most[counts[most] >= max(taken * _TOLD_SHARE, _TOLD_ROWS)]
    keys = {int(distinct[k]): (int(cells[first[k]]), float(counts[k]) * rows / taken) for k in told}
    return KeySample(rows, span_us, keys)


def key_work(sides: Sequence[tuple[Hashes, NDArray[np.int64]]]) -> KeyWork:
    """Of the rows of each side, in the order of their hashes, and how many pairs each of them is in."""
    found = [_by_key(hashes, pairs) for hashes, pairs in sides if len(hashes)]
    rows, pairs = (sum(int(one[column].sum()) for one in found) for column in (1, 2))
    least = (rows * ROW_WORK + pairs) * _TOLD_SHARE
    # Of what a key takes, one side has its part at least: few keys have to be looked for in all.
    some = [own[counts * ROW_WORK + pairs >= least / len(sides)] for own, counts, pairs in found]
    keys: dict[int, tuple[int, int]] = {}
    for key in {int(key) for own in some for key in own}:
        places = [(one, int(np.searchsorted(one[0], np.uint64(key)))) for one in found]
        mine = [(one, place) for one, place in places if place < len(one[0]) and one[0][place] == key]
        keys[key] = (sum(int(one[1][at]) for one, at in mine), sum(int(one[2][at]) for one, at in mine))
    work = {key: own[0] * ROW_WORK + own[1] for key, own in keys.items()}
    told = sorted((key for key in work if work[key] >= least), key=work.__getitem__)[-_TOLD_KEYS:]
    return KeyWork(rows, pairs, {key: keys[key] for key in told}) if rows else NO_WORK


def _by_key(hashes: Hashes, pairs: NDArray[np.int64]) -> tuple[Hashes, NDArray[np.int64], NDArray[np.int64]]:
    """Each hash once, of those that lie in their order; its rows, and their pairs."""
    first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    return hashes[first], np.diff(first, append=len(hashes)), np.add.reduceat(pairs, first)
