"""PAUSE, RESUME and RESTART: control queries and streams."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LifeAction(StrEnum):
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    RESTART = "RESTART"


_OUTCOMES = {
    LifeAction.PAUSE: "is paused",
    LifeAction.RESUME: "goes on",
    LifeAction.RESTART: "is started again",
}


@dataclass(frozen=True, slots=True)
class LifeChange:
    """`PAUSE QUERY q`: change of the lifecycle state of a query or stream."""

    action: LifeAction
    kind: str  # QUERY or STREAM
    name: str

    @property
    def outcome(self) -> str:
        return f"{self.kind.lower()} {self.name} {_OUTCOMES[self.action]}"
