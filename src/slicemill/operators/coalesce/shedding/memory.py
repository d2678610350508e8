"""A memory of tuples that drops those at the ends of runs that cost least, compiled (L16, L21-L23).

Chooses what `slicemill.shedding.fast` chooses; see there for how. Tuples lie in slots, which are linked by
partition.
"""

from __future__ import annotations

from slicemill.machine_code.kernel import kernel
from slicemill.operators.coalesce.shedding.heap import ENTRY, FRAGMENT, SLOT, Ints, pop, push, tidy
from slicemill.operators.coalesce.shedding.layout import (
    AFTER,
    ARRIVED,
    BEFORE,
    BEGIN,
    CHOSEN,
    CODE,
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
    """A fragment has changed: so has what it offers."""
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
    cost, chosen = _cost(rule, slots[first, END] - slots[first, BEGIN], length, grows), first
    if first != last and not grows:
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
def remove(a: Arrays, parts: Ints, rule: Rule, slot: int) -> None:
    """Only ends of fragments are ever dropped, or expire."""
    slots, counts = a.slots, a.counts
    fragment, before, after = slots[slot, OWNER], slots[slot, BEFORE], slots[slot, AFTER]
    if a.fragments[fragment, HEAD] == a.fragments[fragment, TAIL]:
        a.valid[fragment] = NONE
        counts[FRAGMENTS] -= 1
        a.free_fragments[len(a.valid) - counts[FRAGMENTS] - 1] = fragment
    elif a.fragments[fragment, HEAD] == slot:
        a.fragments[fragment, HEAD] = after
        offer(a, parts, rule, fragment)
    else:
        a.fragments[fragment, TAIL] = before
        offer(a, parts, rule, fragment)
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
    """A tuple at the end of its partition's chain."""
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
    if before != NONE and slots[before, END] == begin and slots[before, CODE] == code:
        fragment = slots[before, OWNER]
        a.fragments[fragment, TAIL] = slot
    else:
        if before != NONE:
            offer(a, parts, rule, slots[before, OWNER])  # which grows no more
        fragment = a.free_fragments[len(a.valid) - counts[FRAGMENTS] - 1]
        counts[FRAGMENTS] += 1
        a.fragments[fragment, HEAD] = a.fragments[fragment, TAIL] = slot
    slots[slot, OWNER] = fragment
    offer(a, parts, rule, fragment)


@kernel
def victim(a: Arrays) -> int:
    while a.valid[a.heap[0, FRAGMENT]] != a.heap[0, ENTRY]:
        a.counts[HEAP] = pop(a.costs, a.heap, a.counts[HEAP])
    return int(a.heap[0, SLOT])


def unpacked(stored: Packed, capacity: int, parts: Ints, rule: Rule) -> Arrays:
    """A memory that can take so many tuples."""
    a = empty(capacity, rule.shadow_limit)
    shadow = unpacked_shadow(stored)
    a.shadow[: len(shadow)] = shadow
    parts[:, [FIRST, LAST]] = NONE
    _restore(a, parts, rule, unpacked_tuples(stored, shadow))
    kept = (SHADOW, HALVINGS, TUPLES, ARRIVED, RUNS, DROPPED)
    a.counts[list(kept)] = stored.counts[list(kept)]
    return a


@kernel
def _restore(a: Arrays, parts: Ints, rule: Rule, tuples: Ints) -> None:
    for i in range(len(tuples)):
        t = tuples[i]
        append(a, parts, rule, t[PART], t[BEGIN], t[END], t[CODE], t[RUN], t[TIES], t[ROW])
