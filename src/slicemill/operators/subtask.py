"""Subtask: parallel instance of a task, with its own part of the task's state."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.time import END


@dataclass(frozen=True, slots=True)
class Subtask:
    """Subtask `number` of `count`: a parallel instance of a task, with its own keys.

    With `by_time`, all subtasks read all rows, and each subtask stores the rows of one stripe
    (`columns.keys.stripes_of`). The pair of two rows is found by the subtask that stores the older row (S33).
    With `tied`, several subtasks may emit results for the same row (`columns.merge`).
    """

    number: int = 0
    count: int = 1
    by_time: bool = False
    tied: bool = False


WHOLE = Subtask()


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """Heavy key, whose rows all subtasks read from `since` until `over`.

    `hash` is the hash of the key. `home` is the subtask that stores its rows before `since` and from
    `fades` on. See `operators.join.heavy_keys`.
    """

    hash: int
    home: int
    since: int
    fades: int = END
    over: int = END
