"""Layout of a compiled memory: integer tables with a row per object."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slicemill.operators.coalesce.shedding.heap import Floats, Ints
from slicemill.storage.codec import stored_as

Records: TypeAlias = NDArray[Any]

SLACK = 64
NONE = -1

# Columns of slots. A free slot has no partition. The columns after the first STORED ones are derived.
BEGIN, END, CODE, RUN, TIES, PART, ROW, BEFORE, AFTER, OWNER = range(10)
STORED = 7
# Columns of partitions: linked list, newest tuple, and last known run.
FIRST, LAST, ALIVE, CHOSEN, SINCE, NEW_CODE, NEW_RUN, SERIAL, LAST_RUN, RUN_CODE, RUN_END, SEEN = range(12)
# Columns of fragments. SHORTEST is used if inner tuples may be dropped.
HEAD, TAIL, SHORTEST = range(3)
# Columns of the shadow.
S_RUN, S_PART, S_CODE, S_BEGIN, S_END, S_LAST, S_LOST = range(7)
# Counters.
HELD, FRAGMENTS, ENTRIES, HEAP, SHADOW, HALVINGS, TUPLES, ARRIVED, RUNS, DROPPED = range(10)
DRAWN = ENTRIES  # the random method has no heap entries


class Arrays(NamedTuple):
    """All arrays of a memory."""

    slots: Ints
    free_slots: Ints
    fragments: Ints
    free_fragments: Ints
    valid: Ints  # the latest entry of each fragment
    costs: Floats
    heap: Ints
    shadow: Ints
    counts: Ints


class Rule(NamedTuple):
    """The shedding method in numbers. `threshold` is -1 if there is none.

    If `drawn`, victims are chosen at random by position. The position is in the column of ties, and
    `valid` has the slots by position. If `inner`, the shortest tuple of a fragment may be dropped,
    wherever it is. Otherwise only the first or last one is.
    """

    drawn: bool
    inner: bool
    lost: float
    lookahead: bool
    threshold: int
    seed: int
    shadow_seed: int
    shadow_limit: int


def empty(capacity: int, shadow_limit: int) -> Arrays:
    slots = np.full((capacity + 1, 10), NONE, np.int64)
    free = np.arange(capacity + 1, dtype=np.int64)[::-1].copy()
    size = 4 * (capacity + 2) + SLACK + 2
    return Arrays(
        slots,
        free,
        np.full((capacity + 1, 3), NONE, np.int64),
        free.copy(),
        np.full(capacity + 1, NONE, np.int64),
        np.zeros(size),
        np.zeros((size, 4), np.int64),
        np.zeros((shadow_limit + 1, 7), np.int64),
        np.zeros(10, np.int64),
    )


def new_partitions(count: int) -> Ints:
    out = np.zeros((count, 12), np.int64)
    out[:, [FIRST, LAST, LAST_RUN, RUN_CODE, SEEN]] = NONE
    return out


# Storage format of a tuple and of a run in the shadow between runs of the unit. Times are offsets from a
# common base, in 32 bits if this is enough (71 minutes). Runs are numbered backwards from the latest.
_SHORT, _LONG = (
    np.dtype([("begin", time), ("end", time), ("tie", "i8"), ("code", "i4"), ("later", "u4"), ("part", "i4")])
    for time in ("u4", "i8")
)
ORIGINAL = np.dtype(
    [(name, "i8") for name in ("begin", "end", "last", "lost")]
    + [("later", "u4"), ("part", "i4"), ("code", "i4")]
)


@stored_as("coalesce.packed", version=2)
class Packed(NamedTuple):
    """Packed memory: tuples by partition and time, and the shadow.

    Everything else is derived from these.
    """

    tuples: Records
    shadow: Records
    counts: Ints
    base: int


def packed(a: Arrays) -> Packed:
    held = a.slots[a.slots[:, PART] != NONE]
    held = held[np.lexsort((held[:, BEGIN], held[:, PART]))]
    base = int(held[:, BEGIN].min()) if len(held) else 0
    short = len(held) == 0 or int(held[:, END].max()) - base < 2**32
    tuples = np.empty(len(held), _SHORT if short else _LONG)
    tuples["begin"], tuples["end"] = held[:, BEGIN] - base, held[:, END] - base
    for name, column in (("tie", TIES), ("code", CODE), ("part", PART)):
        tuples[name] = held[:, column]
    tuples["later"] = a.counts[RUNS] - held[:, RUN]
    seen = a.shadow[: a.counts[SHADOW]]
    shadow = np.empty(len(seen), ORIGINAL)
    for name, column in _SHADOW_COLUMNS:
        shadow[name] = seen[:, column]
    shadow["later"] = a.counts[RUNS] - seen[:, S_RUN]
    return Packed(tuples, shadow, a.counts.copy(), base)


_SHADOW_COLUMNS = (
    ("begin", S_BEGIN),
    ("end", S_END),
    ("last", S_LAST),
    ("lost", S_LOST),
    ("part", S_PART),
    ("code", S_CODE),
)


def unpacked_shadow(stored: Packed) -> Ints:
    out = np.empty((len(stored.shadow), 7), np.int64)
    for name, column in _SHADOW_COLUMNS:
        out[:, column] = stored.shadow[name]
    out[:, S_RUN] = stored.counts[RUNS] - stored.shadow["later"].astype(np.int64)
    return out


def unpacked_tuples(stored: Packed, shadow: Ints) -> Ints:
    """Return the stored columns of slots."""
    out = np.empty((len(stored.tuples), STORED), np.int64)
    for name, column in (("begin", BEGIN), ("end", END), ("tie", TIES), ("code", CODE), ("part", PART)):
        out[:, column] = stored.tuples[name]
    out[:, [BEGIN, END]] += stored.base
    out[:, RUN] = stored.counts[RUNS] - stored.tuples["later"].astype(np.int64)
    order = np.argsort(shadow[:, S_RUN])
    runs = shadow[order, S_RUN]
    place = np.searchsorted(runs, out[:, RUN])
    known = np.append(runs, NONE)[np.minimum(place, len(runs))] == out[:, RUN]
    out[:, ROW] = np.where(known, np.append(order, NONE)[np.minimum(place, len(runs))], NONE)
    return out
