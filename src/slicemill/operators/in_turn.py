"""Rows of several inputs in one order, by (timestamp, input, number), as soon as that is known (M21).

An input's register is the timestamp up to which it is known: no row that is still to come is below it. A row
goes in when nothing can come before it any more: its timestamp is below the registers of the inputs before
its own, and not above those of the inputs behind it. Its own input does not count, since that is in order:

    A: 1 3 3   register 3        goes in:  1 2
    B: 2       register 2        waits:    A: 3 3, until B is known up to 3

So what goes in is always a beginning of the one order of all rows, wherever runs are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from slicemill.time import BEGINNING, END

# Up to where inputs must be known for something to come out: all of them, or each of them; or, of several
# such ways, on one.
Due: TypeAlias = int | tuple[int, ...] | list[tuple[int, ...]]
# The same for logs, of several steps: one of them is enough, with all of its logs.
Dues: TypeAlias = tuple[Mapping[str, int], ...]


def borders(registers: Sequence[int]) -> list[int]:
    """By input, the timestamp below which its rows go in; END: all of them."""
    return [
        min([*registers[:place], *map(_behind, registers[place + 1 :])], default=END)
        for place in range(len(registers))
    ]


def due_in_turn(firsts: Sequence[int | None]) -> tuple[int, ...] | None:
    """Up to where each input must be known for the first of the rows that wait; None if none waits.

    `firsts` has the timestamp of the first row of each input that waits.
    """
    waiting = [(ts, place) for place, ts in enumerate(firsts) if ts is not None]
    if not waiting:
        return None
    ts, first = min(waiting)
    known = [ts + 1] * first + [BEGINNING] + [ts] * (len(firsts) - first - 1)
    return tuple(known)


def earliest(dues: Iterable[Mapping[str, int]]) -> Dues:
    """Without those that can only come after others."""
    found: list[Mapping[str, int]] = []
    for due in dues:
        if not any(_is_before(known, due) for known in found):
            found = [known for known in found if not _is_before(due, known)] + [due]
    return tuple(found)


def is_reached(dues: Dues, watermarks: Mapping[str, int]) -> bool:
    """Does something come out when logs are complete up to here?"""
    return any(all(watermarks[log] >= ts for log, ts in due.items()) for due in dues)


def _is_before(due: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Is one reached whenever the other is?"""
    return all(log in other and ts <= other[log] for log, ts in due.items())


def _behind(register: int) -> int:
    return register if register == END else register + 1
