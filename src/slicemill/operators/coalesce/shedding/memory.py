"""Compiled memory that drops the cheapest tuple, or a random one (L16-L18, L21-L23).

The choice is the same as in `slicemill.shedding.fast` and `blind`, which explain it. Tuples are in slots,
linked by partition. If inner tuples may be dropped, a fragment that loses its shortest tuple is searched
for the next one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slicemill.machine_code.kernel import kernel
from slicemill.operators.coalesce.shedding.heap import ENTRY, FRAGMENT, SLOT, Ints, pop, push, tidy
from slicemill.operators.coalesce.shedding.layout import (
    AFTER,
    ARRIVED,
    BEFORE,
    BEGIN,
    CHOSEN,
    CODE,
    DRAWN,
    DROPPED,
    END,
    ENTRIES,
    FIRST,
    FRAGMENTS,
    HALVINGS,
    HEAD,
    HEAP,
    HELD,
    LAST,
    NEW_CODE,
    NONE,
    OWNER,
    PART,
    ROW,
    RUN,
    RUNS,
    SHADOW,
    SHORTEST,
    SINCE,
    SLACK,
    TAIL,
    TIES,
    TUPLES,
    Arrays,
    Packed,
    Rule,
    empty,
    unpacked_shadow,
    unpacked_tuples,
)
from slicemill.operators.coalesce.shedding.scattering import scattered


@kernel
def _cost(rule: Rule, dropped: int, length: int, grows: bool) -> float:
    if rule.threshold < 0 or grows:
        return rule.lost * (dropped / length)
    if length < rule.threshold:
        return 0.0
    rest = length - dropped
    return rule.lost * ((length - (rest if rest >= rule.threshold else 0)) / length)


@kernel
def offer(a: Arrays, parts: Ints, rule: Rule, fragment: int) -> None:
    """Update the heap entry of a changed fragment."""
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
def _is_shorter(slots: Ints, slot: int, than: int) -> bool:
    length, other = slots[slot, END] - slots[slot, BEGIN], slots[than, END] - slots[than, BEGIN]
    return bool(length < other or (length == other and slots[slot, TIES] < slots[than, TIES]))


@kernel
def _look_through(a: Arrays, fragment: int) -> None:
    """Find a fragment's shortest tuple, and set its tuples' owner."""
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
def _split(a: Arrays, parts: Ints, rule: Rule, slot: int) -> None:
    """Split a fragment at an inner tuple that is dropped."""
    counts, fragment = a.counts, a.slots[slot, OWNER]
    new = a.free_fragments[len(a.valid) - counts[FRAGMENTS] - 1]
    counts[FRAGMENTS] += 1
    a.fragments[new, HEAD], a.fragments[new, TAIL] = a.fragments[fragment, HEAD], a.slots[slot, BEFORE]
    a.fragments[fragment, HEAD] = a.slots[slot, AFTER]
    for part in (fragment, new):
        _look_through(a, part)
        offer(a, parts, rule, part)


@kernel
def remove(a: Arrays, parts: Ints, rule: Rule, slot: int) -> None:
    """Remove a tuple that is dropped or expires.

    Only the first tuple of a partition expires.
    """
    slots, counts = a.slots, a.counts
    fragment, before, after = slots[slot, OWNER], slots[slot, BEFORE], slots[slot, AFTER]
    inside = a.fragments[fragment, HEAD] != slot and a.fragments[fragment, TAIL] != slot
    if rule.drawn:
        # Move the last one to the free position.
        place, last = slots[slot, TIES], a.valid[counts[HELD] - 1]
        a.valid[place], slots[last, TIES] = last, place
    elif inside:
        _split(a, parts, rule, slot)
    elif a.fragments[fragment, HEAD] == a.fragments[fragment, TAIL]:
        a.valid[fragment] = NONE
        counts[FRAGMENTS] -= 1
        a.free_fragments[len(a.valid) - counts[FRAGMENTS] - 1] = fragment
    elif a.fragments[fragment, HEAD] == slot:
        a.fragments[fragment, HEAD] = after
        _lost(a, parts, rule, fragment, slot)
    else:
        a.fragments[fragment, TAIL] = before
        _lost(a, parts, rule, fragment, slot)
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
def _lost(a: Arrays, parts: Ints, rule: Rule, fragment: int, slot: int) -> None:
    """Update a fragment that lost its first or last tuple."""
    if rule.inner and a.fragments[fragment, SHORTEST] == slot:
        _look_through(a, fragment)
    offer(a, parts, rule, fragment)


@kernel
def append(
    a: Arrays,
    parts: Ints,
    rule: Rule,
    part: int,
    begin: int,
    end: int,
    code: int,
    run: int,
    tie: int,
    row: int,
) -> None:
    """Append a tuple to the list of its partition."""
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
        if tie == NONE:  # a new tuple
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
            offer(a, parts, rule, slots[before, OWNER])  # this fragment cannot grow any more
        fragment = a.free_fragments[len(a.valid) - counts[FRAGMENTS] - 1]
        counts[FRAGMENTS] += 1
        a.fragments[fragment] = slot
    slots[slot, OWNER] = fragment
    offer(a, parts, rule, fragment)


@kernel
def victim(a: Arrays, rule: Rule) -> Any:
    if rule.drawn:
        a.counts[DRAWN] += 1
        return a.valid[np.int64(scattered(a.counts[DRAWN], rule.seed) % np.uint64(a.counts[HELD]))]
    while a.valid[a.heap[0, FRAGMENT]] != a.heap[0, ENTRY]:
        a.counts[HEAP] = pop(a.costs, a.heap, a.counts[HEAP])
    return a.heap[0, SLOT]


def unpacked(stored: Packed, capacity: int, parts: Ints, rule: Rule) -> Arrays:
    """Return an unpacked memory with this capacity."""
    a = empty(capacity, rule.shadow_limit)
    shadow = unpacked_shadow(stored)
    a.shadow[: len(shadow)] = shadow
    parts[:, [FIRST, LAST]] = NONE
    _restore(a, parts, rule, unpacked_tuples(stored, shadow))
    kept = [SHADOW, HALVINGS, TUPLES, ARRIVED, RUNS, DROPPED, *([DRAWN] if rule.drawn else [])]
    a.counts[kept] = stored.counts[kept]
    return a


@kernel
def _restore(a: Arrays, parts: Ints, rule: Rule, tuples: Ints) -> None:
    for i in range(len(tuples)):
        t = tuples[i]
        append(a, parts, rule, t[PART], t[BEGIN], t[END], t[CODE], t[RUN], t[TIES], t[ROW])
