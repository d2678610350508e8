"""RAND: drop a random tuple when the memory is full (L18)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slicemill.shedding.chains import ChainMemory, Tuple
from slicemill.shedding.methods import Method, scattered


class BlindMemory(ChainMemory):
    """Memory with random victims.

    The slot of a victim depends only on the seed and the number of earlier victims.
    """

    def __init__(self, capacity: int, method: Method) -> None:
        super().__init__(capacity)
        self.method = method
        self._slots: list[Tuple] = []
        self._places: dict[int, int] = {}
        self._drawn = 0

    def _victim(self) -> Tuple:
        self._drawn += 1
        return self._slots[scattered(self._drawn, self.method.seed) % len(self._slots)]

    def _added(self, tuple_: Tuple) -> None:
        self._places[tuple_.serial] = len(self._slots)
        self._slots.append(tuple_)

    def _removing(self, tuple_: Tuple) -> None:
        """Move the last tuple to the free slot."""
        place, last = self._places.pop(tuple_.serial), self._slots.pop()
        if last is not tuple_:
            self._slots[place] = last
            self._places[last.serial] = place

    def state(self) -> dict[str, Any]:
        slots = [one.serial for one in self._slots]
        return super().state() | {"slots": slots, "drawn": self._drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        by_serial = {tuple_.serial: tuple_ for tuple_ in self._slots}
        self._slots = [by_serial[serial] for serial in state["slots"]]
        self._places = {serial: place for place, serial in enumerate(state["slots"])}
        self._drawn = state["drawn"]
