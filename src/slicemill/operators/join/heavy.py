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


def key_work(sides: Sequence[tuple[Hashes, NDArray[np.int64]]]) -> KeyWork:
    """Of the rows of each side, in the order of their hashes, and how many pairs each of them is in."""
    hashes = np.concatenate([own for own, _ in sides])
    pairs = np.concatenate([own for _, own in sides])
    if not len(hashes):
        return NO_WORK
    distinct, place = np.unique(hashes, return_inverse=True)
    rows_by_key = np.bincount(place)
    pairs_by_key = np.bincount(place, weights=pairs).astype(np.int64)
    work = rows_by_key * ROW_WORK + pairs_by_key
    most = np.argsort(work)[-_TOLD_KEYS:]
    told = most[work[most] >= work.sum() * _TOLD_SHARE]
    keys = {int(distinct[k]): (int(rows_by_key[k]), int(pairs_by_key[k])) for k in told}
    return KeyWork(len(hashes), int(pairs.sum()), keys)
