"""Window aggregates, `agg(args) OVER (…)`, with several calls per stream (M31-M37).

Each call has its own frame and its own answers, which the operator combines per tuple. A call with a time
slide answers at the end of the slot. Rows are emitted in timestamp order, so a row waits for the answers
to all earlier rows.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slicemill.aggregates.definition import RowCall, align
from slicemill.aggregates.frames import WindowFrame
from slicemill.types import Row, Timed
from slicemill_oracle.operators.window_dispatch import running_call
from slicemill_oracle.operators.window_slide import Answer


@dataclass(frozen=True, slots=True)
class FramedCall:
    """An aggregate call with its OVER clause."""

    call: RowCall
    frame: WindowFrame


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """An arrival or expiry, with the answers of all calls."""

    ts: int
    row: Row
    answers: list[Answer]


class WindowAggregateOperator:
    """Emits the input row, then the columns of each call.

    A tuple without results from all calls emits no row. Active expiry of a tuple emits a separate row at the
    expiry time, with NULLs for calls without expiry.
    """

    inputs = 1

    def __init__(self, calls: Sequence[FramedCall]) -> None:
        self._definitions = [call.call.definition for call in calls]
        self._running = [running_call(call.call, call.frame) for call in calls]
        self._waits_for_time = any(call.frame.waits_for_time for call in calls)
        self._arrivals = 0
        self._waiting: deque[PendingAnswer] = deque()

    @property
    def waits_for_time(self) -> bool:
        return self._waits_for_time

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        self._pass_time(tuple_.ts)
        answers = [running.arrive(self._arrivals, tuple_) for running in self._running]
        self._arrivals += 1
        self._waiting.append(PendingAnswer(tuple_.ts, tuple_.row, answers))
        return self._release()

    def advance(self, ts: int) -> Sequence[Timed]:
        self._pass_time(ts)
        return self._release()

    def finish(self) -> Sequence[Timed]:
        self._pass_time(math.inf)
        return self._release()

    def due(self) -> int | None:
        return min((due for running in self._running if (due := running.due()) is not None), default=None)

    def held_from(self) -> int | None:
        """Return the time of the oldest waiting row, else next expiry."""
        if self._waiting:
            return self._waiting[0].ts
        due = self.due()
        return None if due is None else due - 1

    def state(self) -> Any:
        waiting = [(each.ts, each.row, each.answers) for each in self._waiting]
        running = [each.state() for each in self._running]
        return {"arrivals": self._arrivals, "waiting": waiting, "running": running}

    def restore(self, state: Any) -> None:
        self._arrivals = state["arrivals"]
        self._waiting = deque(PendingAnswer(*each) for each in state["waiting"])
        for running, kept in zip(self._running, state["running"], strict=True):
            running.restore(kept)

    def _pass_time(self, ts: float) -> None:
        """Close slots and queue expiries. Arrivals before `ts` are already queued."""
        expired: dict[tuple[int, int], PendingAnswer] = {}
        for column, running in enumerate(self._running):
            for expiry in running.pass_time(ts):
                key = (expiry.ts, expiry.number)
                if key not in expired:
                    expired[key] = PendingAnswer(expiry.ts, expiry.row, [Answer([]) for _ in self._running])
                expired[key].answers[column].returned = expiry.returned
        self._waiting.extend(expired[key] for key in sorted(expired))

    def _release(self) -> list[Timed]:
        out: list[Timed] = []
        while self._waiting:
            head = self._waiting[0]
            returned = [answer.returned for answer in head.answers if answer.returned is not None]
            if len(returned) < len(head.answers):
                break
            out += [Timed(head.ts, head.row + values) for values in align(self._definitions, returned)]
            self._waiting.popleft()
        return out
