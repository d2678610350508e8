"""Merge order of several inputs: (timestamp, input, number) (M21).

The register of an input is its watermark: no later row of the input is below the register. A row is released
when no earlier row can arrive. Its timestamp is then below the registers of the inputs before its own input,
and not above the registers of the inputs after its own input. Its own input does not matter, because rows of
an input arrive in order:

    A: 1 3 3   register 3        released: 1 2
    B: 2       register 2        waiting:  A: 3 3, until the register of B is 3

The released rows are always a prefix of the total order of all rows, independent of run boundaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from slicemill.time import BEGINNING, END

# Watermarks of the inputs needed to release a row: one for all inputs, one for each input, or a list of
# alternatives.
Due: TypeAlias = int | tuple[int, ...] | list[tuple[int, ...]]
# Alternatives for several steps. An alternative has the needed watermarks by log, and all of them must be
# reached.
Dues: TypeAlias = tuple[Mapping[str, int], ...]


def borders(registers: Sequence[int]) -> list[int]:
    """Return by input the timestamp below which rows are released.

    END for all rows.
    """
    return [
        min([*registers[:index], *map(_behind, registers[index + 1 :])], default=END)
        for index in range(len(registers))
    ]


def due_in_turn(firsts: Sequence[int | None]) -> tuple[int, ...] | None:
    """Return the watermarks that release the first waiting row.

    None if no row waits. `firsts` has the timestamp of the first waiting row of each input.
    """
    waiting = [(ts, index) for index, ts in enumerate(firsts) if ts is not None]
    if not waiting:
        return None
    ts, first = min(waiting)
    known = [ts + 1] * first + [BEGINNING] + [ts] * (len(firsts) - first - 1)
    return tuple(known)


def earliest(dues: Iterable[Mapping[str, int]]) -> Dues:
    """Drop alternatives that are never reached before another alternative."""
    found: list[Mapping[str, int]] = []
    for due in dues:
        if not any(_is_before(known, due) for known in found):
            found = [known for known in found if not _is_before(due, known)] + [due]
    return tuple(found)


def is_reached(dues: Dues, watermarks: Mapping[str, int]) -> bool:
    """Return True if an alternative is reached at these watermarks."""
    return any(all(watermarks[log] >= ts for log, ts in due.items()) for due in dues)


def _is_before(due: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Return True if `due` is reached whenever `other` is reached."""
    return all(log in other and ts <= other[log] for log, ts in due.items())


def _behind(register: int) -> int:
    return register if register == END else register + 1
