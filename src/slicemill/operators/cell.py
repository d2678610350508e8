"""Cell of a step: its partition of the unit's state."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.time import END


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell `number` of `count`: a task's partition of a unit's state.

    `by_time`: all cells read all rows, and each stores the rows of its stripe (`columns.keys.stripes_of`); a
    pair is found in the cell that stores its older row (S33). `tied`: several cells may emit rows of one
    cause (`columns.merge`).
    """

    number: int = 0
    count: int = 1
    by_time: bool = False
    tied: bool = False


WHOLE = Cell()


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """Heavy key, whose rows all cells read from `since` until `over`.

    See `operators.join.heavy_keys`. `hash` is the hash of the key. `home` is the cell that stores its rows
    before `since` and from `fades` on."""

    hash: int
    home: int
    since: int
    fades: int = END
    over: int = END
