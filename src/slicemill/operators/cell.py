"""Cell: the partition of a unit's state in which a step runs."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.time import END


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell `number` of `count`: a task's partition of a unit's state.

    With `by_time`, all cells read all rows, and each cell stores the rows of one stripe
    (`columns.keys.stripes_of`). The pair of two rows is found by the cell that stores the older row (S33).
    With `tied`, several cells may emit results for the same row (`columns.merge`).
    """

    number: int = 0
    count: int = 1
    by_time: bool = False
    tied: bool = False


WHOLE = Cell()


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """Heavy key, whose rows all cells read from `since` until `over`.

    `hash` is the hash of the key. `home` is the cell that stores its rows before `since` and from `fades` on.
    See `operators.join.heavy_keys`.
    """

    hash: int
    home: int
    since: int
    fades: int = END
    over: int = END
