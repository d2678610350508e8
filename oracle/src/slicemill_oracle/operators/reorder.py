"""Reordering by a column: `CREATE STREAM … ORDER BY column SLACK d`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from slicemill.time import BEGINNING
from slicemill.types import Timed


class ReorderOperator:
    """Sets the timestamp of rows to column `index`. Drops rows more than `slack_us` late."""

    inputs = 1
    waits_for_time = True

    def __init__(self, index: int, slack_us: int) -> None:
        self._index = index
        self._slack_us = slack_us
        self._waiting: list[Timed] = []
        self._now: int | None = BEGINNING  # None: the input has ended

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        out = self._released(tuple_.ts)
        ts = cast("int | None", tuple_.row[self._index])
        if ts is not None and ts >= tuple_.ts - self._slack_us:
            self._waiting.append(Timed(ts, tuple_.row))
        return out

    def advance(self, ts: int) -> Sequence[Timed]:
        return self._released(ts)

    def finish(self) -> Sequence[Timed]:
        return self._released(None)

    def held_from(self) -> int | None:
        """Return the earliest timestamp of future rows, as SLACK allows."""
        return None if self._now is None else max(BEGINNING, self._now - self._slack_us)

    def due(self) -> int | None:
        first = min((row.ts for row in self._waiting), default=None)
        return None if first is None else first + self._slack_us + 1

    def state(self) -> Any:
        return {"waiting": self._waiting, "now": self._now}

    def restore(self, state: Any) -> None:
        self._waiting, self._now = state["waiting"], state["now"]

    def _released(self, now: int | None) -> list[Timed]:
        self._now = now
        ready = [row for row in self._waiting if now is None or row.ts < now - self._slack_us]
        if ready:
            self._waiting = [row for row in self._waiting if row not in ready]
        return sorted(ready, key=lambda row: row.ts)
