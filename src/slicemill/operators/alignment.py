"""Alignment of several inputs: merge their rows by (timestamp, input, number) (M21).

The register of an input is its watermark: no later row of the input is below the register. A row is released
when no earlier row can arrive. The timestamp of a released row is below the registers of the inputs before
its own input, and not above the registers of the inputs after its own input. The register of its own input
does not matter, because rows of an input arrive in order:

    A: 1 3 3   register 3        released: 1 2
    B: 2       register 2        waiting:  A: 3 3, until the register of B is 3

The released rows are always a prefix of the total order of all rows, for any division of the input into
micro-batches. A *due condition* is a set of watermarks that, when all of them are reached, releases waiting
rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from slicemill.time import BEGINNING, END

# Due condition of a step: one watermark for all inputs, one watermark for each input, or a list with a tuple
# of watermarks for each alternative condition.
Due: TypeAlias = int | tuple[int, ...] | list[tuple[int, ...]]
# Alternative due conditions of several steps.
# Each condition maps logs to watermarks that must all be reached.
Dues: TypeAlias = tuple[Mapping[str, int], ...]


def borders(registers: Sequence[int]) -> list[int]:
    """Return for each input the timestamp below which rows are released.

    The timestamp is END if all rows are released.
    """
    return [
        min([*registers[:index], *map(_behind, registers[index + 1 :])], default=END)
        for index in range(len(registers))
    ]


def due_in_turn(firsts: Sequence[int | None]) -> tuple[int, ...] | None:
    """Return the watermarks that release the first waiting row.

    Return None if no row waits. `firsts` has the timestamp of the first waiting row of each input.
    """
    waiting = [(ts, index) for index, ts in enumerate(firsts) if ts is not None]
    if not waiting:
        return None
    ts, first = min(waiting)
    known = [ts + 1] * first + [BEGINNING] + [ts] * (len(firsts) - first - 1)
    return tuple(known)


def earliest(dues: Iterable[Mapping[str, int]]) -> Dues:
    """Drop each due condition that is never reached before another of the conditions."""
    found: list[Mapping[str, int]] = []
    for due in dues:
        if not any(_is_before(known, due) for known in found):
            found = [known for known in found if not _is_before(due, known)] + [due]
    return tuple(found)


def is_reached(dues: Dues, watermarks: Mapping[str, int]) -> bool:
    """Return True if one of the alternative due conditions is met by these watermarks."""
    return any(all(watermarks[log] >= ts for log, ts in due.items()) for due in dues)


def _is_before(due: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Return True if the due condition `due` is met whenever `other` is met."""
    return all(log in other and ts <= other[log] for log, ts in due.items())


def _behind(register: int) -> int:
    return register if register == END else register + 1
