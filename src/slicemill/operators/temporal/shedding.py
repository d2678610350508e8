"""Compiled tuple store that drops tuples when full (L16-L18, L21-L23).

The store drops the tuple with the least cost, or a random tuple. The choice is that of
`slicemill.shedding.memory`, which explains the costs. Tuples are in slots (rows of an array), which are
linked by partition. A *run* (value run) is a sequence of tuples with equal values and adjacent periods, which
becomes one result row. A *fragment* is a sequence of adjacent stored tuples of one run. An *inner tuple* is
neither the first nor the last tuple of its fragment. If inner tuples may be dropped, a fragment that loses
its shortest tuple is searched for its next shortest tuple.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slicemill.codec.registry import stored_as
from slicemill.kernels.arrays import Floats, Int64s
from slicemill.kernels.kernel import kernel


@kernel
def _cost(rule: SheddingRule, dropped: int, length: int, grows: bool) -> float:
    if rule.threshold < 0 or grows:
        return rule.lost * (dropped / length)
    if length < rule.threshold:
        return 0.0
    rest = length - dropped
    return rule.lost * ((length - (rest if rest >= rule.threshold else 0)) / length)


@kernel
def offer(a: MemoryArrays, parts: Int64s, rule: SheddingRule, fragment: int) -> None:
    """Push a new heap entry for a changed sequence of adjacent tuples (fragment)."""
    if rule.drawn:
        return
    slots, counts = a.slots, a.counts
    first, last = a.fragments[fragment, HEAD], a.fragments[fragment, TAIL]
    owner = parts[slots[last, PART]]
    grows = (
        rule.lookahead
        and slots[last, AFTER] == NONE
        and owner[CHOSEN] == 1
        and owner[SINCE] == slots[last, END]
        and owner[NEW_CODE] == slots[last, CODE]
    )
    length = slots[last, END] - slots[first, BEGIN]
    if rule.inner:
        first = a.fragments[fragment, SHORTEST]
    cost, chosen = _cost(rule, slots[first, END] - slots[first, BEGIN], length, grows), first
    if first != last and not grows and not rule.inner:
        other = _cost(rule, slots[last, END] - slots[last, BEGIN], length, grows)
        if other < cost or (other == cost and slots[last, TIES] < slots[first, TIES]):
            cost, chosen = other, last
    counts[ENTRIES] += 1
    a.valid[fragment] = counts[ENTRIES]
    tie = slots[chosen, TIES]
    counts[HEAP] = push(a.costs, a.heap, counts[HEAP], cost, tie, counts[ENTRIES], fragment, chosen)
    if counts[HEAP] > 4 * counts[FRAGMENTS] + SLACK:
        counts[HEAP] = tidy(a.costs, a.heap, counts[HEAP], a.valid)


@kernel
def _is_shorter(slots: Int64s, slot: int, than: int) -> bool:
    length, other = slots[slot, END] - slots[slot, BEGIN], slots[than, END] - slots[than, BEGIN]
    return bool(length < other or (length == other and slots[slot, TIES] < slots[than, TIES]))


@kernel
def _scan_fragment(a: MemoryArrays, fragment: int) -> None:
    """Find the shortest tuple among some adjacent tuples (a fragment).

    Record the number of the fragment in its tuples.
    """
    slots = a.slots
    slot = shortest = a.fragments[fragment, HEAD]
    while True:
        slots[slot, OWNER] = fragment
        if _is_shorter(slots, slot, shortest):
            shortest = slot
        if slot == a.fragments[fragment, TAIL]:
            break
        slot = slots[slot, AFTER]
    a.fragments[fragment, SHORTEST] = shortest


@kernel
def _split(a: MemoryArrays, parts: Int64s, rule: SheddingRule, slot: int) -> None:
    """Split adjacent tuples (a fragment) at a tuple between them that is dropped."""
    counts, fragment = a.counts, a.slots[slot, OWNER]
    new = a.free_fragments[len(a.valid) - counts[FRAGMENTS] - 1]
    counts[FRAGMENTS] += 1
    a.fragments[new, HEAD], a.fragments[new, TAIL] = a.fragments[fragment, HEAD], a.slots[slot, BEFORE]
    a.fragments[fragment, HEAD] = a.slots[slot, AFTER]
    for part in (fragment, new):
        _scan_fragment(a, part)
        offer(a, parts, rule, part)


@kernel
def remove(a: MemoryArrays, parts: Int64s, rule: SheddingRule, slot: int) -> None:
    """Remove a tuple that is dropped or expires.

    Only the first tuple of a partition can expire.
    """
    slots, counts = a.slots, a.counts
    fragment, before, after = slots[slot, OWNER], slots[slot, BEFORE], slots[slot, AFTER]
    inside = a.fragments[fragment, HEAD] != slot and a.fragments[fragment, TAIL] != slot
    if rule.drawn:
        # The tuple at the last random position takes the position of the removed tuple.
        index, last = slots[slot, TIES], a.valid[counts[HELD] - 1]
        a.valid[index], slots[last, TIES] = last, index
    elif inside:
        _split(a, parts, rule, slot)
    elif a.fragments[fragment, HEAD] == a.fragments[fragment, TAIL]:
        a.valid[fragment] = NONE
        counts[FRAGMENTS] -= 1
        a.free_fragments[len(a.valid) - counts[FRAGMENTS] - 1] = fragment
    elif a.fragments[fragment, HEAD] == slot:
        a.fragments[fragment, HEAD] = after
        _shrink_fragment(a, parts, rule, fragment, slot)
    else:
        a.fragments[fragment, TAIL] = before
        _shrink_fragment(a, parts, rule, fragment, slot)
    part = slots[slot, PART]
    if before == NONE:
        parts[part, FIRST] = after
    else:
        slots[before, AFTER] = after
    if after == NONE:
        parts[part, LAST] = before
    else:
        slots[after, BEFORE] = before
    slots[slot, PART] = NONE
    counts[HELD] -= 1
    a.free_slots[len(a.slots) - counts[HELD] - 1] = slot


@kernel
def _shrink_fragment(a: MemoryArrays, parts: Int64s, rule: SheddingRule, fragment: int, slot: int) -> None:
    """Update adjacent tuples (a fragment) after the loss of the first or last tuple."""
    if rule.inner and a.fragments[fragment, SHORTEST] == slot:
        _scan_fragment(a, fragment)
    offer(a, parts, rule, fragment)


@kernel
def append(
    a: MemoryArrays,
    parts: Int64s,
    rule: SheddingRule,
    part: int,
    begin: int,
    end: int,
    code: int,
    run: int,
    tie: int,
    row: int,
) -> None:
    """Append a tuple to the linked list of its partition."""
    slots, counts = a.slots, a.counts
    slot = a.free_slots[len(a.slots) - counts[HELD] - 1]
    counts[HELD] += 1
    before = parts[part, LAST]
    slots[slot, BEGIN], slots[slot, END], slots[slot, CODE] = begin, end, code
    slots[slot, RUN], slots[slot, TIES], slots[slot, PART], slots[slot, ROW] = run, tie, part, row
    slots[slot, BEFORE], slots[slot, AFTER] = before, NONE
    if before == NONE:
        parts[part, FIRST] = slot
    else:
        slots[before, AFTER] = slot
    parts[part, LAST] = slot
    if rule.drawn:
        if tie == NONE:  # the tuple is new, and has no random position yet
            slots[slot, TIES] = counts[HELD] - 1
        a.valid[slots[slot, TIES]] = slot
        return
    if before != NONE and slots[before, END] == begin and slots[before, CODE] == code:
        fragment = slots[before, OWNER]
        a.fragments[fragment, TAIL] = slot
        if _is_shorter(slots, slot, a.fragments[fragment, SHORTEST]):
            a.fragments[fragment, SHORTEST] = slot
    else:
        if before != NONE:
            # The cost may change, because the previous fragment cannot grow any more.
            offer(a, parts, rule, slots[before, OWNER])
        fragment = a.free_fragments[len(a.valid) - counts[FRAGMENTS] - 1]
        counts[FRAGMENTS] += 1
        a.fragments[fragment] = slot
    slots[slot, OWNER] = fragment
    offer(a, parts, rule, fragment)


@kernel
def victim(a: MemoryArrays, rule: SheddingRule) -> Any:
    if rule.drawn:
        a.counts[DRAWN] += 1
        return a.valid[np.int64(hash_number(a.counts[DRAWN], rule.seed) % np.uint64(a.counts[HELD]))]
    while a.valid[a.heap[0, FRAGMENT]] != a.heap[0, ENTRY]:
        a.counts[HEAP] = pop(a.costs, a.heap, a.counts[HEAP])
    return a.heap[0, SLOT]


def unpack_memory(stored: PackedMemory, capacity: int, parts: Int64s, rule: SheddingRule) -> MemoryArrays:
    """Unpack stored tuples to the arrays of a tuple store with this capacity."""
    a = empty(capacity, rule.shadow_limit)
    shadow = unpack_shadow(stored)
    a.shadow[: len(shadow)] = shadow
    parts[:, [FIRST, LAST]] = NONE
    _restore(a, parts, rule, unpack_tuples(stored, shadow))
    kept = [SHADOW, HALVINGS, TUPLES, ARRIVED, RUNS, DROPPED, *([DRAWN] if rule.drawn else [])]
    a.counts[kept] = stored.counts[kept]
    return a


@kernel
def _restore(a: MemoryArrays, parts: Int64s, rule: SheddingRule, tuples: Int64s) -> None:
    for i in range(len(tuples)):
        t = tuples[i]
        append(a, parts, rule, t[PART], t[BEGIN], t[END], t[CODE], t[RUN], t[TIES], t[ROW])


# Arrival and expiry of tuples, and the sample of exact runs (*shadow*) with which accuracy is measured


@kernel
def samples(run: int, halvings: int, seed: int) -> bool:
    return (
        halvings == 0 or hash_number(run, seed) & ((np.uint64(1) << np.uint64(halvings)) - np.uint64(1)) == 0
    )


@kernel
def _shadow_row(a: MemoryArrays, parts: Int64s, rule: SheddingRule, part: int, begin: int, end: int) -> int:
    """Add a tuple to its run of equal values in the sample of exact runs.

    The period of the tuple has just ended. The tuple extends a run, or begins a run. Return the row of the
    run in the array `shadow`, or -1 if the run is not sampled.
    """
    shadow, counts = a.shadow, a.counts
    run, row = parts[part, LAST_RUN], parts[part, SEEN]
    if row != NONE and shadow[row, S_RUN] == run:
        shadow[row, S_END], shadow[row, S_LAST] = end, begin
        return int(row)
    if not samples(run, counts[HALVINGS], rule.shadow_seed):
        return NONE
    row = counts[SHADOW]
    counts[SHADOW] += 1
    shadow[row, S_RUN], shadow[row, S_PART], shadow[row, S_CODE] = run, part, parts[part, RUN_CODE]
    shadow[row, S_BEGIN], shadow[row, S_END], shadow[row, S_LAST] = begin, end, begin
    shadow[row, S_LOST] = np.iinfo(np.int64).min
    parts[part, SEEN] = row
    while counts[SHADOW] > rule.shadow_limit:
        counts[HALVINGS] += 1
        keep_runs(a, parts, np.iinfo(np.int64).min, rule.shadow_seed)
    return int(parts[part, SEEN])


@kernel
def keep_runs(a: MemoryArrays, parts: Int64s, horizon: int, seed: int) -> None:
    """Drop exact runs from the sample if not sampled any more, or expired."""
    shadow, counts = a.shadow, a.counts
    moved = np.full(counts[SHADOW], NONE, np.int64)
    kept = 0
    for row in range(counts[SHADOW]):
        if shadow[row, S_LAST] >= horizon and samples(shadow[row, S_RUN], counts[HALVINGS], seed):
            moved[row] = kept
            shadow[kept] = shadow[row]
            kept += 1
    for part in range(len(parts)):
        if parts[part, SEEN] != NONE:
            parts[part, SEEN] = moved[parts[part, SEEN]]
    for slot in range(len(a.slots)):
        if a.slots[slot, PART] != NONE and a.slots[slot, ROW] != NONE:
            a.slots[slot, ROW] = moved[a.slots[slot, ROW]]
    counts[SHADOW] = kept


@kernel
def take(
    a: MemoryArrays,
    parts: Int64s,
    rule: SheddingRule,
    capacity: int,
    horizon: int,
    keys: Int64s,
    ts: Int64s,
    codes: Int64s,
    chosen: Int64s,
) -> None:
    """Process arriving tuples in order.

    When the period of a tuple has ended, the tuple is stored only if it began at or after the horizon.
    """
    counts = a.counts
    for i in range(len(ts)):
        part, now = keys[i], ts[i]
        p = parts[part]
        begin = p[SINCE]
        closed = p[ALIVE] == 1 and p[CHOSEN] == 1 and begin < now
        if closed:
            p[LAST_RUN], p[RUN_CODE], p[RUN_END] = p[NEW_RUN], p[NEW_CODE], now
        run = p[LAST_RUN]
        if chosen[i]:
            counts[ARRIVED] += 1
            if p[RUN_END] != now or p[RUN_CODE] != codes[i]:
                run = counts[RUNS]
                counts[RUNS] += 1
        counts[TUPLES] += 1
        p[ALIVE], p[CHOSEN], p[SINCE], p[NEW_CODE], p[NEW_RUN] = 1, chosen[i], now, codes[i], run
        if closed and begin >= horizon:
            row = _shadow_row(a, parts, rule, part, begin, now)
            tie: Any = NONE
            if not rule.drawn:
                tie = np.int64(hash_number(p[SERIAL], rule.seed) ^ (np.uint64(1) << np.uint64(63)))
            append(a, parts, rule, part, begin, now, p[RUN_CODE], p[LAST_RUN], tie, row)
        elif p[LAST] != NONE:
            offer(a, parts, rule, a.slots[p[LAST], OWNER])
        p[SERIAL] = counts[TUPLES]
        if counts[HELD] > capacity:
            slot = victim(a, rule)
            counts[DROPPED] += 1
            row = a.slots[slot, ROW]
            if row != NONE:
                a.shadow[row, S_LOST] = max(a.shadow[row, S_LOST], a.slots[slot, BEGIN])
            remove(a, parts, rule, slot)


@kernel
def expire(a: MemoryArrays, parts: Int64s, rule: SheddingRule, horizon: int) -> None:
    """Expire tuples that began before the horizon.

    A partition whose newest tuple expired is dropped.
    """
    for part in range(len(parts)):
        p = parts[part]
        if p[ALIVE] == 0:
            continue
        gone = p[SINCE] < horizon
        while p[FIRST] != NONE and (gone or a.slots[p[FIRST], BEGIN] < horizon):
            remove(a, parts, rule, p[FIRST])
        if gone:
            p[ALIVE], p[CHOSEN], p[RUN_CODE], p[LAST_RUN], p[RUN_END], p[SEEN] = 0, 0, NONE, NONE, 0, NONE
    keep_runs(a, parts, horizon, rule.shadow_seed)
    if a.counts[SHADOW] == 0:
        a.counts[HALVINGS] = 0


# Compiled heap of tuples that may be dropped, ordered by cost, then by rank among equal costs (tie)
#
# Each push has an entry number. Only the latest entry of a fragment (sequence of adjacent tuples) is valid.


TIE, ENTRY, FRAGMENT, SLOT = range(4)


@kernel
def _less(costs: Floats, heap: Int64s, left: int, right: int) -> bool:
    if costs[left] != costs[right]:
        return bool(costs[left] < costs[right])
    return bool(heap[left, TIE] < heap[right, TIE])


@kernel
def _swap(costs: Floats, heap: Int64s, left: int, right: int) -> None:
    costs[left], costs[right] = costs[right], costs[left]
    for column in range(4):
        heap[left, column], heap[right, column] = heap[right, column], heap[left, column]


@kernel
def sift_down(costs: Floats, heap: Int64s, count: int, index: int) -> None:
    while True:
        child = 2 * index + 1
        if child >= count:
            return
        if child + 1 < count and _less(costs, heap, child + 1, child):
            child += 1
        if not _less(costs, heap, child, index):
            return
        _swap(costs, heap, child, index)
        index = child


@kernel
def push(
    costs: Floats, heap: Int64s, count: int, cost: float, tie: int, entry: int, fragment: int, slot: int
) -> int:
    """Add an entry to the heap; return the new number of entries."""
    costs[count] = cost
    heap[count, TIE], heap[count, ENTRY], heap[count, FRAGMENT], heap[count, SLOT] = (
        tie,
        entry,
        fragment,
        slot,
    )
    index = count
    while index > 0 and _less(costs, heap, index, (index - 1) // 2):
        _swap(costs, heap, index, (index - 1) // 2)
        index = (index - 1) // 2
    return count + 1


@kernel
def pop(costs: Floats, heap: Int64s, count: int) -> int:
    """Remove the first entry of the heap; return the new number of entries."""
    _swap(costs, heap, 0, count - 1)
    sift_down(costs, heap, count - 1, 0)
    return count - 1


@kernel
def tidy(costs: Floats, heap: Int64s, count: int, valid: Int64s) -> int:
    """Remove outdated entries from the heap; return the new number of entries.

    Only the latest entry of each sequence of adjacent tuples (fragment) is valid.
    """
    kept = 0
    for index in range(count):
        if valid[heap[index, FRAGMENT]] == heap[index, ENTRY]:
            costs[kept] = costs[index]
            heap[kept] = heap[index]
            kept += 1
    for index in range(kept // 2 - 1, -1, -1):
        sift_down(costs, heap, kept, index)
    return kept


# Layout of the compiled tuple store: arrays of integers, with a row for each object


Records: TypeAlias = NDArray[Any]

SLACK = 64
NONE = -1

# Columns of slots, which hold tuples.
# A free slot has no partition.
# Checkpoints contain the first STORED columns, from which the other columns are derived.
BEGIN, END, CODE, RUN, TIES, PART, ROW, BEFORE, AFTER, OWNER = range(10)
STORED = 7
# Columns of partitions: linked list, newest tuple, and last run of equal values with a known end.
FIRST, LAST, ALIVE, CHOSEN, SINCE, NEW_CODE, NEW_RUN, SERIAL, LAST_RUN, RUN_CODE, RUN_END, SEEN = range(12)
# Columns of fragments: first tuple, last tuple, and shortest tuple (if tuples between them may be dropped).
HEAD, TAIL, SHORTEST = range(3)
# Columns of the shadow, which is the sample of exact runs.
S_RUN, S_PART, S_CODE, S_BEGIN, S_END, S_LAST, S_LOST = range(7)
# Positions of counters in `MemoryArrays.counts`.
HELD, FRAGMENTS, ENTRIES, HEAP, SHADOW, HALVINGS, TUPLES, ARRIVED, RUNS, DROPPED = range(10)
DRAWN = ENTRIES  # counter of random numbers; the random method has no heap and needs no ENTRIES


class MemoryArrays(NamedTuple):
    """Arrays of a compiled tuple store."""

    slots: Int64s
    free_slots: Int64s
    fragments: Int64s
    free_fragments: Int64s
    valid: Int64s  # latest heap entry of each fragment
    costs: Floats
    heap: Int64s
    shadow: Int64s
    counts: Int64s


class SheddingRule(NamedTuple):
    """Parameters of a shedding method as plain numbers, for compiled code.

    A `threshold` of -1 means no threshold. If `drawn`, dropped tuples are chosen at random by position. The
    column TIES then has the position of a slot, and `valid` has the slots by position. If `inner`, the
    shortest tuple of a fragment (sequence of adjacent tuples) may be dropped. Otherwise only its first and
    last tuple may be dropped.
    """

    drawn: bool
    inner: bool
    lost: float
    lookahead: bool
    threshold: int
    seed: int
    shadow_seed: int
    shadow_limit: int


def empty(capacity: int, shadow_limit: int) -> MemoryArrays:
    slots = np.full((capacity + 1, 10), NONE, np.int64)
    free = np.arange(capacity + 1, dtype=np.int64)[::-1].copy()
    size = 4 * (capacity + 2) + SLACK + 2
    return MemoryArrays(
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


def new_partitions(count: int) -> Int64s:
    out = np.zeros((count, 12), np.int64)
    out[:, [FIRST, LAST, LAST_RUN, RUN_CODE, SEEN]] = NONE
    return out


# Storage format of tuples and of exact runs of equal values between micro-batches.
# Times are offsets from a common base, in 32 bits if their range is below 71 minutes.
# Runs are numbered backwards from the latest run.
_SHORT, _LONG = (
    np.dtype([("begin", time), ("end", time), ("tie", "i8"), ("code", "i4"), ("later", "u4"), ("part", "i4")])
    for time in ("u4", "i8")
)
ORIGINAL = np.dtype(
    [(name, "i8") for name in ("begin", "end", "last", "lost")]
    + [("later", "u4"), ("part", "i4"), ("code", "i4")]
)


@stored_as("coalesce.packed", version=2)
class PackedMemory(NamedTuple):
    """Content of a compiled tuple store, packed for a checkpoint.

    It has the tuples by partition and time, and the sample of exact runs. The other arrays are derived from
    them.
    """

    tuples: Records
    shadow: Records
    counts: Int64s
    base: int


def pack_memory(a: MemoryArrays) -> PackedMemory:
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
    return PackedMemory(tuples, shadow, a.counts.copy(), base)


_SHADOW_COLUMNS = (
    ("begin", S_BEGIN),
    ("end", S_END),
    ("last", S_LAST),
    ("lost", S_LOST),
    ("part", S_PART),
    ("code", S_CODE),
)


def unpack_shadow(stored: PackedMemory) -> Int64s:
    out = np.empty((len(stored.shadow), 7), np.int64)
    for name, column in _SHADOW_COLUMNS:
        out[:, column] = stored.shadow[name]
    out[:, S_RUN] = stored.counts[RUNS] - stored.shadow["later"].astype(np.int64)
    return out


def unpack_tuples(stored: PackedMemory, shadow: Int64s) -> Int64s:
    """Return the tuples of a checkpoint as rows with the first STORED columns of slots."""
    out = np.empty((len(stored.tuples), STORED), np.int64)
    for name, column in (("begin", BEGIN), ("end", END), ("tie", TIES), ("code", CODE), ("part", PART)):
        out[:, column] = stored.tuples[name]
    out[:, [BEGIN, END]] += stored.base
    out[:, RUN] = stored.counts[RUNS] - stored.tuples["later"].astype(np.int64)
    order = np.argsort(shadow[:, S_RUN])
    runs = shadow[order, S_RUN]
    index = np.searchsorted(runs, out[:, RUN])
    known = np.append(runs, NONE)[np.minimum(index, len(runs))] == out[:, RUN]
    out[:, ROW] = np.where(known, np.append(order, NONE)[np.minimum(index, len(runs))], NONE)
    return out


# Compiled pseudo-random hash, which is equal in every process


@kernel
def hash_number(number: int, seed: int) -> Any:
    """Return the hash of a number, as `slicemill.shedding.methods.splitmix64` does."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    mixed = np.uint64(number) + np.uint64(seed) * golden + golden
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
