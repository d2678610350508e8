"""Streams of values with times, and memories that are fed with them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction

from slicemill.shedding.accuracy import accuracy
from slicemill.shedding.memory import ChainMemory, NewestTuple, Tuple


def closed(values: Sequence[Hashable], times: Sequence[int]) -> list[Tuple]:
    """Return tuples that are valid until the next time; there is one time more than values."""
    found: list[Tuple] = []
    run = -1
    for number, (value, begin) in enumerate(zip(values, times, strict=False)):
        if number == 0 or value != values[number - 1]:
            run += 1
        found.append(Tuple(value, begin, times[number + 1], number, number, run))
    return found


def feed(memory: ChainMemory, tuples: Sequence[Tuple], window: int | None = None) -> list[int | None]:
    """Return the number of the dropped tuple at each step; when a tuple ends, the next value is known."""
    dropped = []
    for place, tuple_ in enumerate(tuples):
        after = tuples[place + 1] if place + 1 < len(tuples) else None
        if window is not None:
            memory.expire("p", number=tuple_.number + 1 - window)
        follower = NewestTuple(after.values, after.begin) if after is not None else None
        victim = memory.arrive("p", copy(tuple_), follower)
        dropped.append(victim.tuple.number if victim is not None else None)
    return dropped


def copy(tuple_: Tuple) -> Tuple:
    return Tuple(*tuple_.plain())


def exact_runs(tuples: Sequence[Tuple]) -> dict[int, tuple[int, int]]:
    runs: dict[int, tuple[int, int]] = {}
    for one in tuples:
        runs[one.run] = (runs.get(one.run, (one.begin, 0))[0], one.end)
    return runs


def fragments(kept: Sequence[Tuple]) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for one in kept:
        pieces = found.setdefault(one.run, [])
        if pieces and pieces[-1][1] == one.begin:
            pieces[-1] = (pieces[-1][0], one.end)
        else:
            pieces.append((one.begin, one.end))
    return found


def accuracy_of(tuples: Sequence[Tuple], kept: Sequence[Tuple]) -> Fraction:
    return accuracy(exact_runs(tuples), fragments(kept))
