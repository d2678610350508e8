"""Operators without a kernel of their own: the step hosts the operator of the reference engine.

It is handed its tuples in order, as far as all inputs are complete.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from slicemill.engine.rows import timed_rows, to_table
from slicemill.engine.steps.step import END
from slicemill.esl.types import Schema
from slicemill.execution.aggregate import shown
from slicemill.execution.coalesce_shedding import SheddingCoalesce
from slicemill.execution.operator import Holding, Operator, Restorable, Row, Timed
from slicemill.shedding.report import Report
from slicemill.storage.arrow_schema import ARRIVAL
from slicemill.storage.codec import stored_as


@stored_as("rows", version=1)
@dataclass(slots=True)
class RowState:
    """What a hosted operator keeps from run to run: its own state and tuples that have to wait.

    The operator itself is made from the plan.
    """

    operator: Any
    waiting: list[list[tuple[Timed, int]]] = field(default_factory=list)
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the keys that one bucket takes care of."""

    key: Callable[[Row], Row]
    bucket: int
    buckets: int

    def takes(self, row: Row) -> bool:
        # Not Python's hash, which differs from process to process. Both zeros are one key.
        return zlib.crc32(repr(shown(self.key(row))).encode()) % self.buckets == self.bucket


class RowStep:
    """Hosts an operator of the reference engine.

    Tuples of several inputs go in by (timestamp, input, arrival), and only those earlier than what is
    complete on every input: whatever the borders between runs, the operator sees the same sequence.
    """

    def __init__(
        self,
        operator: Operator,
        schemas: Sequence[Schema],
        output: Schema,
        share: Share | None,
        known: RowState | None = None,
    ) -> None:
        assert isinstance(operator, Restorable), f"{type(operator).__name__} does not say what it keeps"
        self._operator = operator
        self._schemas = schemas
        self._output = output
        self._share = share
        self._waiting: list[list[tuple[Timed, int]]] = [[] for _ in schemas]
        self._finished = False
        if known is not None:
            operator.restore(known.operator)
            self._waiting, self._finished = known.waiting, known.finished

    @property
    def state(self) -> RowState:
        assert isinstance(self._operator, Restorable), "it was when the step was made"
        return RowState(self._operator.state(), self._waiting, self._finished)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        for waiting, table, schema in zip(self._waiting, tables, self._schemas, strict=True):
            waiting += self._mine(
                zip(timed_rows(table, schema), table.column(ARRIVAL).to_pylist(), strict=True)
            )
        until = min(complete)
        out: list[Timed] = []
        arrivals: list[int] = []
        last_arrival = 0
        for port, timed, arrival in self._ready(until):
            made = self._operator.process(port, timed)
            last_arrival = max(last_arrival, arrival)
            out += made
            arrivals += [arrival] * len(made)
        operator = self._operator
        late: list[Timed] = []
        if until == END and not self._finished:
            late = list(operator.finish())
            self._finished = True
        elif operator.waits_for_time and until > -END:
            late = list(operator.advance(until))
        out += late
        arrivals += [last_arrival] * len(late)
        held = operator.held_from() if isinstance(operator, Holding) else None
        return to_table(out, self._output, arrivals), until if held is None else min(until, held)

    @property
    def shed(self) -> Report | None:
        """What the operator has dropped for lack of memory, if it may drop anything."""
        operator = self._operator
        return operator.report if isinstance(operator, SheddingCoalesce) else None

    def due(self) -> int | None:
        waiting = [queue[0][0].ts + 1 for queue in self._waiting if queue]
        operator = self._operator
        held = operator.due() if isinstance(operator, Holding) else None
        return min([*waiting, *([] if held is None else [held])], default=None)

    def _mine(self, rows: object) -> list[tuple[Timed, int]]:
        pairs: list[tuple[Timed, int]] = list(rows)  # type: ignore[call-overload]
        return pairs if self._share is None else [pair for pair in pairs if self._share.takes(pair[0].row)]

    def _ready(self, until: int) -> list[tuple[int, Timed, int]]:
        """Tuples that may go in now, in order; the others wait on."""
        single = len(self._waiting) == 1
        ready: list[tuple[int, Timed, int]] = []
        for port, waiting in enumerate(self._waiting):
            # One input is in order by itself: nothing can come before what is here.
            count = len(waiting) if single else _count_before(waiting, until)
            ready += [(port, timed, arrival) for timed, arrival in waiting[:count]]
            self._waiting[port] = waiting[count:]
        return ready if single else sorted(ready, key=lambda entry: (entry[1].ts, entry[0]))


def _count_before(waiting: list[tuple[Timed, int]], until: int) -> int:
    if until == END:
        return len(waiting)
    return next((i for i, (timed, _) in enumerate(waiting) if timed.ts >= until), len(waiting))
