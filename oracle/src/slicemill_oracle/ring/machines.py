"""Machines with inboxes, in virtual time or in random order (S35)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Generic, TypeVar

Message = TypeVar("Message")


@dataclass(frozen=True, slots=True)
class RingCosts:
    """Costs in seconds (T_j, T_p, T_i, T_s, T_n).

    `join` is per compared pair, `send` per message handled, and `hop` per transmission.
    """

    join: float = 0.0
    purge: float = 0.0
    insert: float = 0.0
    send: float = 0.0
    hop: float = 0.0


class Machines(Generic[Message]):
    """Machines with FIFO inboxes that handle one message at a time.

    With `random` there is no time, and any machine with a message may run next. Otherwise the machine that
    can start first runs next, and sending takes `costs.hop`.
    """

    def __init__(self, number: int, costs: RingCosts, random: Random | None = None) -> None:
        self.costs = costs
        self.now = 0.0
        """The current time of the active machine."""
        self._random = random
        self._inboxes: list[list[tuple[float, int, Message]]] = [[] for _ in range(number)]
        self._free_at = [0.0] * number
        self._sent = count()

    def __len__(self) -> int:
        return len(self._inboxes)

    def grow(self, number: int) -> None:
        """Grow to at least this number of machines."""
        while len(self._inboxes) < number:
            self._inboxes.append([])
            self._free_at.append(self.now)

    def send(self, machine: int, message: Message, at: float | None = None) -> None:
        """Send a message, by default at the current time."""
        ready = 0.0 if self._random else (self.now if at is None else at) + self.costs.hop
        heappush(self._inboxes[machine], (ready, next(self._sent), message))

    def spend(self, seconds: float) -> None:
        """Advance time by the work of the active machine."""
        self.now += seconds

    @property
    def next_start(self) -> float:
        """Return the start time of the next message, or infinity if there is no message."""
        return min(
            (self._start(one) for one, inbox in enumerate(self._inboxes) if inbox), default=float("inf")
        )

    def step(self, handle: Callable[[int, Message], None]) -> bool:
        """Let one machine handle a message. Return False if there are no messages."""
        waiting = [one for one, inbox in enumerate(self._inboxes) if inbox]
        if not waiting:
            return False
        machine = self._random.choice(waiting) if self._random else min(waiting, key=self._start)
        self.now = self._start(machine)
        _, _, message = heappop(self._inboxes[machine])
        self.spend(self.costs.send)
        handle(machine, message)
        self._free_at[machine] = self.now
        return True

    def _start(self, machine: int) -> float:
        return max(self._free_at[machine], self._inboxes[machine][0][0])
