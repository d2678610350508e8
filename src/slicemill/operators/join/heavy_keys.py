"""Heavy keys: spread the rows of a skewed key over all subtasks (S37-S38).

A heavy key has more work than one subtask can do, so that all subtasks read its rows. The `home` of the key
is the subtask to which its hash assigns it. Three timestamps determine the subtasks that read and store a
row of the key:

    timestamp of the row          since              fades               over
    subtasks that read     home        │  all subtasks        │  all subtasks        │  home
    subtask that stores    home        │  by sequence      │  home             │  home
                                    │  number (stripe)  │                   │

The pair is found by the subtask that stores its older row. From `since` on, all subtasks probe with a row,
until the rows stored outside the home subtask have left the longest window. The timestamp and the sequence
number determine the subtask that stores a row. A replay and a later run therefore choose the same subtask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slicemill.columns.keys import stripes_of
from slicemill.kernels.arrays import Bools, Int64s
from slicemill.operators.join.probe import Hashes
from slicemill.operators.subtask import HeavyKey, Subtask

# smallest share of a subtask's join work, and largest number of keys, that a subtask reports as heavy
_TOLD_SHARE, _TOLD_KEYS = 1 / 64, 16
# minimum number of rows that a reported key has in a sample, because smaller numbers occur by chance
_TOLD_ROWS = 4

# cost of reading, hashing, sorting and storing one row, in comparisons of a pair
ROW_WORK = 32


def broadcast_mask(heavy: Iterable[HeavyKey], hashes: Hashes, times: Int64s) -> Bools:
    """Return True for each row of a heavy key that all subtasks read, and False for other rows."""
    found = np.zeros(len(hashes), np.bool_)
    for key in heavy:
        found |= (hashes == np.uint64(key.hash)) & (times >= key.since) & (times < key.over)
    return found


def local_mask(
    subtask: Subtask, heavy: Iterable[HeavyKey], hashes: Hashes, times: Int64s, seqs: Int64s
) -> Bools:
    """Return True for each row that this subtask stores, and False for rows that other subtasks store."""
    if subtask.by_time:
        return np.asarray(stripes_of(seqs, subtask.count) == subtask.number)
    mine = np.ones(len(hashes), np.bool_)
    for key in heavy:
        rows = np.flatnonzero((hashes == np.uint64(key.hash)) & (times >= key.since) & (times < key.over))
        spread = stripes_of(seqs[rows], subtask.count) == subtask.number
        mine[rows] = np.where(times[rows] < key.fades, spread, subtask.number == key.home)
    return mine


@dataclass(frozen=True, slots=True)
class KeyWork:
    """Number of rows that a join read and of pairs that it compared in one micro-batch.

    `keys` maps the hashes of the keys with the most work to their numbers of (rows, pairs).
    """

    rows: int = 0
    pairs: int = 0
    keys: Mapping[int, tuple[int, int]] = field(default_factory=dict)


NO_WORK = KeyWork()


@dataclass(frozen=True, slots=True)
class KeySample:
    """Key frequencies, estimated from a sample of a log's rows.

    `rows` is the number of rows written, and `span_us` the time between the first and the last. `keys` has,
    by hash, the subtask and the estimated number of rows of each frequent key.
    """

    rows: int
    span_us: int
    keys: Mapping[int, tuple[int, float]] = field(default_factory=dict)


def key_sample(
    rows: int, span_us: int, hashes: Hashes, valid: Bools | None, subtasks: NDArray[np.integer]
) -> KeySample:
    """Estimate the number of rows of each frequent key from a sample. NULL keys are ignored."""
    taken = len(hashes)
    if valid is not None:
        hashes, subtasks = hashes[valid], subtasks[valid]
    distinct, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    most = np.argsort(counts)[-_TOLD_KEYS:]
    told = most[counts[most] >= max(taken * _TOLD_SHARE, _TOLD_ROWS)]
    keys = {int(distinct[k]): (int(subtasks[first[k]]), float(counts[k]) * rows / taken) for k in told}
    return KeySample(rows, span_us, keys)


def key_work(sides: Sequence[tuple[Hashes, NDArray[np.int64]]]) -> KeyWork:
    """Return the join work of one micro-batch, in total and for the keys with the most work.

    `sides` has the sorted hashes and the pair counts of each side.
    """
    found = [_by_key(hashes, pairs) for hashes, pairs in sides if len(hashes)]
    rows, pairs = (sum(int(one[column].sum()) for one in found) for column in (1, 2))
    least = (rows * ROW_WORK + pairs) * _TOLD_SHARE
    # A key with enough work for a report reaches half of the minimum work on at least one of both sides.
    some = [own[counts * ROW_WORK + pairs >= least / len(sides)] for own, counts, pairs in found]
    keys: dict[int, tuple[int, int]] = {}
    for key in {int(key) for own in some for key in own}:
        indices = [(one, int(np.searchsorted(one[0], np.uint64(key)))) for one in found]
        mine = [(one, index) for one, index in indices if index < len(one[0]) and one[0][index] == key]
        keys[key] = (sum(int(one[1][at]) for one, at in mine), sum(int(one[2][at]) for one, at in mine))
    work = {key: own[0] * ROW_WORK + own[1] for key, own in keys.items()}
    told = sorted((key for key in work if work[key] >= least), key=work.__getitem__)[-_TOLD_KEYS:]
    return KeyWork(rows, pairs, {key: keys[key] for key in told}) if rows else NO_WORK


def _by_key(hashes: Hashes, pairs: NDArray[np.int64]) -> tuple[Hashes, NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct values of sorted hashes, and the number of rows and pairs of each value.

    `pairs` has the number of compared pairs of each row.
    """
    first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    return hashes[first], np.diff(first, append=len(hashes)), np.add.reduceat(pairs, first)
