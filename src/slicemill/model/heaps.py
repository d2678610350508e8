"""Order statistics of a window for compiled code, with two heaps (C17).

One heap has the elements below a rank, the other those above it. An entry is a value and the number of its
element, so no two entries are equal. Elements with numbers below `gone` have expired. They are removed lazily
at the top, or all at once when they outnumber live elements. So an element costs O(log n). The lower heap
stores negated values and numbers, so the first entry of each heap is next to the rank.
"""

from __future__ import annotations

from typing import Any

from slicemill.machine_code.kernel import kernel

_FEW = 32


@kernel
def _before(pool: Any, a: int, b: int) -> bool:
    first, second = pool[a], pool[b]
    return bool(first.value < second.value or (first.value == second.value and first.number < second.number))


@kernel
def _swap(pool: Any, a: int, b: int) -> None:
    value, number = pool[a].value, pool[a].number
    pool[a].value, pool[a].number = pool[b].value, pool[b].number
    pool[b].value, pool[b].number = value, number


@kernel
def _sink(pool: Any, at: int, rows: int, place: int) -> None:
    while True:
        child = 2 * place + 1
        if child >= rows:
            return
        if child + 1 < rows and _before(pool, at + child + 1, at + child):
            child += 1
        if not _before(pool, at + child, at + place):
            return
        _swap(pool, at + child, at + place)
        place = child


@kernel
def _push(pool: Any, at: int, rows: int, value: float, number: int) -> int:
    pool[at + rows].value, pool[at + rows].number = value, number
    place = rows
    while place > 0 and _before(pool, at + place, at + (place - 1) // 2):
        _swap(pool, at + place, at + (place - 1) // 2)
        place = (place - 1) // 2
    return rows + 1


@kernel
def _pop(pool: Any, at: int, rows: int) -> int:
    _swap(pool, at, at + rows - 1)
    _sink(pool, at, rows - 1, 0)
    return rows - 1


@kernel
def _pruned(pool: Any, at: int, rows: int, live: int, gone: int) -> int:
    """Remove expired entries from the top, or all if too many."""
    if rows > 2 * live + _FEW:
        kept = 0
        for i in range(rows):
            if abs(pool[at + i].number) >= gone:
                pool[at + kept].value, pool[at + kept].number = pool[at + i].value, pool[at + i].number
                kept += 1
        rows = kept
        for i in range(rows // 2 - 1, -1, -1):
            _sink(pool, at, rows, i)
    while rows > 0 and abs(pool[at].number) < gone:
        rows = _pop(pool, at, rows)
    return rows


@kernel
def _balanced(
    lower: Any, la: int, lr: int, ll: int, upper: Any, ua: int, ur: int, ul: int, gone: int, target: int
) -> tuple[int, int, int, int]:
    """Move elements until the lower heap has `target` live ones.

    Return the numbers of entries and live elements of both heaps.
    """
    lr = _pruned(lower, la, lr, ll, gone)
    ur = _pruned(upper, ua, ur, ul, gone)
    while ll < target:
        value, number = upper[ua].value, upper[ua].number
        ur = _pop(upper, ua, ur)
        lr = _push(lower, la, lr, -value, -number)
        ll, ul = ll + 1, ul - 1
        ur = _pruned(upper, ua, ur, ul, gone)
    while ll > target:
        value, number = lower[la].value, lower[la].number
        lr = _pop(lower, la, lr)
        ur = _push(upper, ua, ur, -value, -number)
        ll, ul = ll - 1, ul + 1
        lr = _pruned(lower, la, lr, ll, gone)
    return lr, ll, ur, ul


@kernel
def came(
    lower: Any,
    la: int,
    lr: int,
    ll: int,
    upper: Any,
    ua: int,
    ur: int,
    ul: int,
    value: float,
    number: int,
    gone: int,
    target: int,
) -> tuple[int, int, int, int]:
    """Add an element. Both heaps must have room for one more entry."""
    if ll > 0 and value < -lower[la].value:
        lr, ll = _push(lower, la, lr, -value, -number), ll + 1
    else:
        ur, ul = _push(upper, ua, ur, value, number), ul + 1
    return _balanced(lower, la, lr, ll, upper, ua, ur, ul, gone, target)


@kernel
def left(
    lower: Any,
    la: int,
    lr: int,
    ll: int,
    upper: Any,
    ua: int,
    ur: int,
    ul: int,
    value: float,
    gone: int,
    target: int,
) -> tuple[int, int, int, int]:
    """Remove the oldest element, whose number is `gone`."""
    if ll > 0 and (value < -lower[la].value or (value == -lower[la].value and gone <= -lower[la].number)):
        ll -= 1
    else:
        ul -= 1
    return _balanced(lower, la, lr, ll, upper, ua, ur, ul, gone + 1, target)
