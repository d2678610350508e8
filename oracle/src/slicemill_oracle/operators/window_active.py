"""ACTIVE EXPIRATION: results on arrival and on expiry of a tuple (M36).

Every tuple adds a negative tuple, due at its expiry time. Negatives are merged with arrivals by timestamp
and run EXPIRE. RANGE is inclusive, so arrivals precede negatives of the same time (X14):

    RANGE 5      a (0)         b (5) meets a       a leaves (5)       b leaves (10)
    time     ----0-------------5-------------------5------------------10---->
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from slicemill.aggregates.definition import RowCall, Stepper, WindowAccumulator, WindowFactory
from slicemill.aggregates.frames import Args, Inwindow, WindowFrame
from slicemill.types import Row, Timed
from slicemill_oracle.operators.window_slide import Answer, Expiry


@dataclass(slots=True)
class ActivePartition:
    inwindow: Inwindow
    instance: WindowAccumulator
    stepper: Stepper
    arrivals: int = 0


@dataclass(frozen=True, slots=True)
class NegativeTuple:
    """The future expiry of a tuple."""

    ts: int
    number: int
    row: Row
    args: Args
    partition: ActivePartition


class ActiveCall:
    """Window call with ACTIVE EXPIRATION. Positions are arrival numbers."""

    __slots__ = ("_call", "_extent_us", "_frame", "_negatives", "_partitions", "_window")

    def __init__(self, call: RowCall, frame: WindowFrame, window: WindowFactory) -> None:
        assert frame.preceding is not None
        self._call = call
        self._frame = frame
        self._extent_us = frame.preceding
        self._window = window
        self._partitions: dict[Hashable, ActivePartition] = {}
        self._negatives: deque[NegativeTuple] = deque()

    def arrive(self, number: int, tuple_: Timed) -> Answer:
        key = self._frame.partition(tuple_.row)
        if key not in self._partitions:
            self._partitions[key] = self._fresh()
        partition = self._partitions[key]
        args = self._call.arguments(tuple_.row)
        if self._call.definition.numbered:
            args = (*args, partition.arrivals)
        partition.arrivals += 1
        partition.inwindow.insert(number, args)
        self._negatives.append(
            NegativeTuple(tuple_.ts + self._extent_us, number, tuple_.row, args, partition)
        )
        return Answer(partition.stepper.step(args))

    def pass_time(self, ts: float) -> list[Expiry]:
        expiries: list[Expiry] = []
        while self._negatives and self._negatives[0].ts < ts:
            negative = self._negatives.popleft()
            partition = negative.partition
            if partition.inwindow.oldest_position() != negative.number:
                continue  # the aggregate has deleted the tuple: no EXPIRE
            returned = partition.instance.expire(negative.args)
            partition.inwindow.remove_oldest(negative.number)
            expiries.append(Expiry(negative.ts, negative.number, negative.row, returned))
        return expiries

    def due(self) -> int | None:
        """Return the next expiry plus 1, because arrivals at the expiry time precede it."""
        return self._negatives[0].ts + 1 if self._negatives else None

    def state(self) -> Any:
        partitions = {
            key: (each.inwindow.state(), each.stepper.state(), each.arrivals)
            for key, each in self._partitions.items()
        }
        negatives = [(each.ts, each.number, each.row, each.args) for each in self._negatives]
        return {"partitions": partitions, "negatives": negatives}

    def restore(self, state: Any) -> None:
        for key, (window, steps, arrivals) in state["partitions"].items():
            partition = self._partitions[key] = self._fresh()
            partition.inwindow.restore(window)
            partition.stepper.restore(steps)
            partition.arrivals = arrivals
        for ts, number, row, args in state["negatives"]:
            partition = self._partitions[self._frame.partition(row)]
            self._negatives.append(NegativeTuple(ts, number, row, args, partition))

    def _fresh(self) -> ActivePartition:
        inwindow = Inwindow()
        instance = self._window(inwindow)
        return ActivePartition(inwindow, instance, Stepper(instance))
