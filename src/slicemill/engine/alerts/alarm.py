"""State machine of an alert: ok, pending, firing.

There is one for each query or stream.

           holds                 has held FOR d
    ok ────────────► pending ────────────────────► firing ──┐ REPEAT EVERY d: sent again
     ▲                  │                             │  ▲──┘
     └──────────────────┴──────── does not hold ──────┘ sends: resolved

A condition that is NULL, because a metric is not known yet, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any


class AlarmState(StrEnum):
    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"


@dataclass(frozen=True, slots=True)
class Alarm:
    """State of an alarm with its times.

    `since_us` is the start of the condition, `told_us` the time of the last message, and `times` the number
    of messages.
    """

    state: AlarmState = AlarmState.OK
    since_us: int = 0
    told_us: int = 0
    times: int = 0

    def looked(
        self, holds: bool | None, now_us: int, for_us: int, repeat_us: int | None
    ) -> tuple[Alarm, str | None]:
        """Apply the condition's value; return the new state and the message."""
        if holds is None:
            return self, None
        if not holds:
            return Alarm(), "resolved" if self.state is AlarmState.FIRING else None
        pending = replace(self, state=AlarmState.PENDING, since_us=now_us)
        now = pending if self.state is AlarmState.OK else self
        if now.state is AlarmState.PENDING:
            if now_us - now.since_us < for_us:
                return now, None
            return replace(now, state=AlarmState.FIRING, told_us=now_us, times=1), "firing"
        if repeat_us is not None and now_us - now.told_us >= repeat_us:
            return replace(now, told_us=now_us, times=now.times + 1), "firing"
        return now, None

    def plain(self) -> dict[str, Any]:
        """Return the fields of a firing alarm for the journal."""
        return {"since": self.since_us, "told": self.told_us, "times": self.times}

    @staticmethod
    def of(plain: dict[str, Any]) -> Alarm:
        return Alarm(AlarmState.FIRING, plain["since"], plain["told"], plain["times"])
