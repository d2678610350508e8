"""Which cell of its unit a step is in, and what that means for it."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.time import END


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of so many.

    `by_time`: all cells get all rows, and each stores those of its stripe (`columns.cells.stripes_of`); a
    pair is found where its older row is stored (S33). `tied`: rows of one cause may come from several cells
    (`storage.ties`).
    """

    number: int = 0
    count: int = 1
    by_time: bool = False
    tied: bool = False


WHOLE = Cell()


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key of which rows from `since` on go to all cells, until `over` (`operators.join.heavy`).

    It is named by its hash. `home` is the cell where its other rows are, and those from `fades` on.
    """

    hash: int
    home: int
    since: int
    fades: int = END
    over: int = END
