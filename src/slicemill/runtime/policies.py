"""Which unit runs next: the dispatcher's policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from slicemill.errors import SlicemillError
from slicemill.esl.errors import did_you_mean


class Pending(Protocol):
    """A unit that could run now."""

    @property
    def id(self) -> str: ...

    def oldest_arrival(self) -> int: ...


Chooser = Callable[[Sequence[Pending]], int]


def first_come() -> Chooser:
    """FCFS: the unit whose oldest waiting tuple has waited longest."""
    return lambda ready: min(range(len(ready)), key=lambda i: ready[i].oldest_arrival())


def round_robin() -> Chooser:
    """RR: each unit in turn."""
    last = ""

    def choose(ready: Sequence[Pending]) -> int:
        nonlocal last
        later = [i for i, unit in enumerate(ready) if unit.id > last]
        chosen = min(later or range(len(ready)), key=lambda i: ready[i].id)
        last = ready[chosen].id
        return chosen

    return choose


POLICIES: dict[str, Callable[[], Chooser]] = {"fcfs": first_come, "rr": round_robin}


def make_policy(name: str) -> Chooser:
    if name.lower() not in POLICIES:
        hint = did_you_mean(name, POLICIES) or f"there are {', '.join(POLICIES)}"
        raise SlicemillError(f"there is no policy {name}; {hint}")
    return POLICIES[name.lower()]()
