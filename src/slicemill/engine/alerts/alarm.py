"""The alarm of one condition on one query or stream: ok, pending, firing.

           holds                 has held FOR d
    ok ────────────► pending ────────────────────► firing ──┐ REPEAT EVERY d: told again
     ▲                  │                             │  ▲──┘
     └──────────────────┴──────── does not hold ──────┘ told: resolved

A condition that is neither true nor false, because a figure is not known yet, changes nothing.
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
    """`since_us`: the condition has held since then. `told_us`: it was last told then, for the n-th time."""

    state: AlarmState = AlarmState.OK
    since_us: int = 0
    told_us: int = 0
    times: int = 0

    def looked(
        self, holds: bool | None, now_us: int, for_us: int, repeat_us: int | None
    ) -> tuple[Alarm, str | None]:
        """The alarm after a look at the condition, and what is to be told: firing, resolved or nothing."""
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
        """What the journal keeps of one that is firing."""
        return {"since": self.since_us, "told": self.told_us, "times": self.times}

    @staticmethod
    def of(plain: dict[str, Any]) -> Alarm:
        return Alarm(AlarmState.FIRING, plain["since"], plain["told"], plain["times"])
