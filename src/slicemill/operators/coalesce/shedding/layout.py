"""How a compiled memory is laid out: whole numbers in tables, a row for each thing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slicemill.operators.coalesce.shedding.heap import Floats, Ints
from slicemill.storage.codec import stored_as

SLACK = 64
NONE = -1

# Columns of slots; a free one has no partition. Those after the first ones follow from them.
BEGIN, END, CODE, RUN, TIES, PART, ROW, BEFORE, AFTER, OWNER = range(10)
STORED = 7
# Columns of partitions: their chain, their newest tuple, and the last run that is known of them.
FIRST, LAST, ALIVE, CHOSEN, SINCE, NEW_CODE, NEW_RUN, SERIAL, LAST_RUN, RUN_CODE, RUN_END, SEEN = range(12)
# Columns of fragments.
HEAD, TAIL = range(2)
# Columns of the shadow.
S_RUN, S_PART, S_CODE, S_BEGIN, S_END, S_LAST, S_LOST = range(7)
# Counters.
HELD, FRAGMENTS, ENTRIES, HEAP, SHADOW, HALVINGS, TUPLES, ARRIVED, RUNS, DROPPED = range(10)


class Arrays(NamedTuple):
    """All that a memory consists of."""

    slots: Ints
    free_slots: Ints
    fragments: Ints
    free_fragments: Ints
    valid: Ints  # the entry of each fragment
    costs: Floats
    heap: Ints
    shadow: Ints
    counts: Ints


class Rule(NamedTuple):
    """The method, in numbers; `threshold` is -1 where there is none."""

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
        np.full((capacity + 1, 2), NONE, np.int64),
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


@stored_as("coalesce.packed", version=1)
class Packed(NamedTuple):
    """What has to be stored of a memory: the rest follows from it."""

    tuples: Ints  # the first columns of slots, by partition and time
    shadow: Ints
    counts: Ints


def packed(a: Arrays) -> Packed:
    held = a.slots[a.slots[:, PART] != NONE]
    held = held[np.lexsort((held[:, BEGIN], held[:, PART]))]
    return Packed(held[:, :STORED].copy(), a.shadow[: a.counts[SHADOW]].copy(), a.counts.copy())
