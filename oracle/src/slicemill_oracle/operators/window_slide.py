"""SLIDE of window calls: selection of yield tuples (M34).

A ROWS slot ends with its yield tuple, so the result is emitted immediately. A time slot ends when time
passes its end. Until then, a later tuple of the same partition may replace its latest tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from slicemill.aggregates.definition import Returned, RowCall
from slicemill.aggregates.frames import WindowFrame
from slicemill.codec.registry import stored_as
from slicemill.types import Row, Timed
from slicemill_oracle.operators.window_evaluation import Evaluation, Question


@stored_as("window.answer", version=1)
@dataclass(slots=True)
class Answer:
    """Results of a call for one tuple. None for an open slot."""

    returned: Returned | None


@dataclass(frozen=True, slots=True)
class Expiry:
    """Results of a call when a tuple expired."""

    ts: int
    number: int
    row: Row
    returned: Returned


class RunningCall(Protocol):
    """A window call over all its partitions."""

    def arrive(self, number: int, tuple_: Timed) -> Answer:
        """Process a tuple. `number` is its index among the operator's arrivals."""
        ...

    def pass_time(self, ts: float) -> list[Expiry]:
        """Advance time: all later tuples have timestamps of at least `ts`."""
        ...

    def due(self) -> int | None:
        """Return the next time that `pass_time` must handle, or None."""
        ...

    def state(self) -> Any:
        """Return the state to store, including open answers."""
        ...

    def restore(self, state: Any) -> None: ...


@dataclass(slots=True)
class CallPartition:
    evaluation: Evaluation
    arrivals: int = 0


class Partitions:
    """Partitions of a call, created on their first tuple."""

    __slots__ = ("_call", "_frame", "_make", "_partitions")

    def __init__(self, call: RowCall, frame: WindowFrame, make: Callable[[], Evaluation]) -> None:
        self._call = call
        self._frame = frame
        self._make = make
        self._partitions: dict[Hashable, CallPartition] = {}

    def arrive(self, key: Hashable, tuple_: Timed) -> tuple[Question, int]:
        """Return the tuple's question, and the partition's number of tuples."""
        if key not in self._partitions:
            self._partitions[key] = CallPartition(self._make())
        partition = self._partitions[key]
        position = partition.arrivals if self._frame.unit == "ROWS" else tuple_.ts
        args = self._call.arguments(tuple_.row)
        if self._call.definition.numbered:
            args = (*args, partition.arrivals)
        partition.arrivals += 1
        question = partition.evaluation.arrive(position, args)
        return question, partition.arrivals

    def question(self, key: Hashable) -> Question:
        """Return the question of a partition's latest tuple."""
        return self._partitions[key].evaluation.question()

    def state(self) -> dict[Hashable, tuple[int, object]]:
        return {key: (each.arrivals, each.evaluation.state()) for key, each in self._partitions.items()}

    def restore(self, state: dict[Hashable, tuple[int, Any]]) -> None:
        for key, (arrivals, kept) in state.items():
            self._partitions[key] = CallPartition(self._make(), arrivals)
            self._partitions[key].evaluation.restore(kept)


class ImmediateCall:
    """A call without SLIDE, or with SLIDE in rows."""

    __slots__ = ("_frame", "_partitions")

    def __init__(self, frame: WindowFrame, partitions: Partitions) -> None:
        self._frame = frame
        self._partitions = partitions

    def arrive(self, number: int, tuple_: Timed) -> Answer:  # noqa: ARG002
        question, arrivals = self._partitions.arrive(self._frame.partition(tuple_.row), tuple_)
        yields = self._frame.slide is None or arrivals % self._frame.slide == 0
        return Answer(question() if yields else [])

    def pass_time(self, ts: float) -> list[Expiry]:  # noqa: ARG002
        return []

    def due(self) -> int | None:
        return None

    def state(self) -> Any:
        return self._partitions.state()

    def restore(self, state: Any) -> None:
        self._partitions.restore(state)


class SlotEndCall:
    """Call with SLIDE in time. All open answers belong to the latest slot."""

    __slots__ = ("_end", "_frame", "_open", "_partitions")

    def __init__(self, frame: WindowFrame, partitions: Partitions) -> None:
        self._frame = frame
        self._partitions = partitions
        self._open: dict[Hashable, tuple[Question, Answer]] = {}
        self._end = 0

    def arrive(self, number: int, tuple_: Timed) -> Answer:  # noqa: ARG002
        self._end = self._frame.slot_end(tuple_.ts)
        key = self._frame.partition(tuple_.row)
        if key in self._open:
            _, overtaken = self._open[key]
            overtaken.returned = []
        question, _ = self._partitions.arrive(key, tuple_)
        answer = Answer(None)
        self._open[key] = (question, answer)
        return answer

    def pass_time(self, ts: float) -> list[Expiry]:
        if ts >= self._end:
            for question, answer in self._open.values():
                answer.returned = question()
            self._open.clear()
        return []

    def due(self) -> int | None:
        return self._end if self._open else None

    def state(self) -> Any:
        waiting = {key: answer for key, (_, answer) in self._open.items()}
        return {"partitions": self._partitions.state(), "open": waiting, "end": self._end}

    def restore(self, state: Any) -> None:
        self._partitions.restore(state["partitions"])
        self._open = {key: (self._partitions.question(key), answer) for key, answer in state["open"].items()}
        self._end = state["end"]
