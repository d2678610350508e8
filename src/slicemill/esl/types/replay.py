"""REPLAY: statement that reads rejected rows of a stream again.

REPLAY declares nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.errors import counted
from slicemill.esl.types.expression import Expr


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Counts of replayed rows.

    `late` of the `read` rows were too late for their order; `failed` rows were rejected again.
    """

    read: int
    failed: int
    late: int

    def __str__(self) -> str:
        tried = counted(self.read + self.failed, "row")
        late = f", {self.late} of them too late for their order" if self.late else ""
        return f"{tried} replayed: {self.read} read{late}, {self.failed} failed again"


@dataclass(frozen=True, slots=True)
class Replay:
    """`REPLAY s_errors WHERE …`: `name` is the error log, `stream` the declared stream."""

    name: str
    stream: str
    where: Expr | None = None
    outcome: ReplayOutcome | None = None
