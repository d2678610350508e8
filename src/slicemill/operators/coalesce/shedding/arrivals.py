"""Arrivals, window expiry, and the shadow of runs in a compiled memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from slicemill.machine_code.kernel import kernel
from slicemill.operators.coalesce.shedding.heap import Ints
from slicemill.operators.coalesce.shedding.layout import (
    ALIVE,
    ARRIVED,
    BEGIN,
    CHOSEN,
    DROPPED,
    FIRST,
    HALVINGS,
    HELD,
    LAST,
    LAST_RUN,
    NEW_CODE,
    NEW_RUN,
    NONE,
    OWNER,
    PART,
    ROW,
    RUN_CODE,
    RUN_END,
    RUNS,
    S_BEGIN,
    S_CODE,
    S_END,
    S_LAST,
    S_LOST,
    S_PART,
    S_RUN,
    SEEN,
    SERIAL,
    SHADOW,
    SINCE,
    TUPLES,
    Arrays,
    Rule,
)
from slicemill.operators.coalesce.shedding.memory import append, offer, remove, victim
from slicemill.operators.coalesce.shedding.scattering import scattered


@kernel
def samples(run: int, halvings: int, seed: int) -> bool:
    return halvings == 0 or scattered(run, seed) & ((np.uint64(1) << np.uint64(halvings)) - np.uint64(1)) == 0


@kernel
def _saw(a: Arrays, parts: Ints, rule: Rule, part: int, begin: int, end: int) -> int:
    """Return the shadow row of a tuple's run, or -1 if not sampled.

    The tuple's period has just ended. Its run continues, or begins with it.
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
def keep_runs(a: Arrays, parts: Ints, horizon: int, seed: int) -> None:
    """Drop runs that are not sampled or whose last tuple expired."""
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
    a: Arrays,
    parts: Ints,
    rule: Rule,
    capacity: int,
    horizon: int,
    keys: Ints,
    ts: Ints,
    codes: Ints,
    chosen: Ints,
) -> None:
    """Add tuples in order.

    Tuples that began before the horizon are not stored once their period has ended.
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
            row = _saw(a, parts, rule, part, begin, now)
            tie: Any = NONE
            if not rule.drawn:
                tie = np.int64(scattered(p[SERIAL], rule.seed) ^ (np.uint64(1) << np.uint64(63)))
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
def expire(a: Arrays, parts: Ints, rule: Rule, horizon: int) -> None:
    """Expire tuples that began before the horizon.

    Partitions whose newest tuple expired are dropped.
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
