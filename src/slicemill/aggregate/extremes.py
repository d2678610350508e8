"""Aggregates that keep one tuple of their window: min, max, min_by, max_by, first, last, priority_sample.

The base version remembers the tuple that wins over the others. The window version lets the window forget what
a newer tuple beats: it can never win again, so the oldest one left is the winner (M33).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from slicemill.aggregate.definition import AggregateDefinition, Returned
from slicemill.aggregate.hashes import priority
from slicemill.aggregate.inwindow import Args, Inwindow


def _first(args: Args) -> object:
    return args[0]


def _second(args: Args) -> object:
    return args[-1]


def _priority(args: Args) -> object:
    return priority(cast(int, args[1]))


@dataclass(frozen=True, slots=True)
class Contest:
    """Which of two tuples is kept: what of them is compared, which of two such keys wins, and if NULL may."""

    wins: Callable[[object, object], bool]
    key: Callable[[Args], object] = _first
    takes_null: bool = False


class Kept:
    """Base version: the one tuple that wins over the others. Outside of windows it counts them itself."""

    __slots__ = ("_best", "_contest", "_numbered", "_seen", "_value")

    def __init__(self, contest: Contest, numbered: bool = False) -> None:
        self._contest = contest
        self._numbered = numbered
        self._seen = 0
        self._best: object = None
        self._value: Returned = []

    def initialize(self, args: Args) -> Returned:
        if self._numbered and len(args) == 1:
            args = (*args, self._seen)
        self._seen += 1
        new = self._contest.key(args)
        takes_part = new is not None or self._contest.takes_null
        if takes_part and (not self._value or self._contest.wins(new, self._best)):
            self._best = new
            self._value = [args[0]]
        return []

    iterate = initialize

    def terminate(self) -> Returned:
        return self._value or [None]

    def state(self) -> object:
        return self._seen, self._best, self._value

    def restore(self, state: Any) -> None:
        self._seen, self._best, self._value = state


class KeptWindow:
    """Window version: what a newer tuple beats is deleted.

    The new tuple is in the window already and must not delete itself; equal older values linger (X6). A
    forgotten tuple triggers no EXPIRE, so this version does not serve ACTIVE EXPIRATION.
    """

    __slots__ = ("_contest", "_inwindow")

    def __init__(self, contest: Contest, inwindow: Inwindow) -> None:
        self._contest = contest
        self._inwindow = inwindow

    def initialize(self, args: Args) -> Returned:
        contest = self._contest
        new = contest.key(args)

        def beaten(tuple_: Args) -> bool:
            old = contest.key(tuple_)
            if not contest.takes_null and (old is None or new is None):
                return old is None
            return tuple_ is not args and contest.wins(new, old)

        self._inwindow.delete(beaten)
        oldest = self._inwindow.oldest()
        return [None if oldest is None else oldest[0]]

    iterate = initialize

    def expire(self, args: Args) -> Returned:  # noqa: ARG002 - it is the oldest, which the window tells
        return [left[0] for left in list(self._inwindow)[1:2]]

    def state(self) -> object:
        """All that it knows is in the window."""
        return None

    def restore(self, state: Any) -> None:
        pass


def _greater(new: object, old: object) -> bool:
    """NaN is greater than every number, as in Spark."""
    if old != old:
        return False
    return new != new or cast(float, new) > cast(float, old)


def _less(new: object, old: object) -> bool:
    return _greater(old, new)


def _never(new: object, old: object) -> bool:  # noqa: ARG001
    return False


def _always(new: object, old: object) -> bool:  # noqa: ARG001
    return True


def _kept(
    name: str, contest: Contest, algebraic: bool = False, numbered: bool = False
) -> AggregateDefinition:
    return AggregateDefinition(
        name,
        base=lambda: Kept(contest, numbered),
        window=lambda inwindow: KeptWindow(contest, inwindow),
        algebraic=algebraic,
        forgets=True,
        numbered=numbered,
    )


KEPT = (
    _kept("min", Contest(_less), algebraic=True),
    _kept("max", Contest(_greater), algebraic=True),
    _kept("first", Contest(_never, takes_null=True), algebraic=True),
    _kept("last", Contest(_always, takes_null=True), algebraic=True),
    _kept("min_by", Contest(_less, _second)),
    _kept("max_by", Contest(_greater, _second)),
    _kept("priority_sample", Contest(_greater, _priority), numbered=True),
)
