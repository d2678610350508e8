"""Window joins of two streams, of one query or of many (operators.join)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from slicemill.errors import SlicemillError
from slicemill.operators.join.shared import Join
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.join.state import JoinState
from slicemill.operators.making import Making
from slicemill.operators.part.spec import Part
from slicemill.operators.step import SharedStep, StatefulStep, StepResult
from slicemill.shedding.accuracy import AccuracySums
from slicemill.shedding.report import Report
from slicemill.storage.arrow_schema import TS


def shared_join(making: Making) -> StatefulStep | SharedStep | None:
    operator = making.node.operator
    if not isinstance(operator, SharedJoin):
        return None
    state = making.state if isinstance(making.state, JoinState) else JoinState()
    join = Join(operator, making.schemas, state, making.newcomers, making.seq_bits)
    limited = [member.name for member in operator.members if member.limit is not None]
    step = SharedJoinStep(join, limited)
    readers = making.graph.consumers(making.node.id)
    return step if any(isinstance(reader.operator, Part) for reader in readers) else JoinStep(step)


class SharedJoinStep:
    """A part for each query: pairs of rows before the time up to which both inputs are complete."""

    def __init__(self, join: Join, counted: Sequence[str] = ()) -> None:
        self._join = join
        self._counted = counted  # queries whose pairs may be left out
        self._shares: Mapping[str, float] = {}

    @property
    def state(self) -> JoinState:
        return self._join.state

    @property
    def sheds(self) -> Mapping[str, Report]:
        return {name: self.state.sheds[name] for name in self._counted if name in self.state.sheds}

    def shorten(self, shares: Mapping[str, float]) -> None:
        """In the next run, reach only so far into these queries' windows."""
        self._shares = shares
        self._join.shorten({name: share for name, share in shares.items() if share < 1})

    def _count(self, tables: Sequence[pa.Table], until: int) -> None:
        """Pairs that are not looked for cannot be counted: of ages that are equally likely, a share."""
        rows = sum(table.num_rows for table in tables)
        for name in self._counted if rows else ():
            report = self.state.sheds.setdefault(name, Report())
            report.arrived += rows
            latest = max(int(pc.max(table.column(TS)).as_py()) for table in tables if table.num_rows)
            report.add(min(latest, until), AccuracySums(self._shares.get(name, 1.0) * rows, rows))

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]:
        until = min(complete)
        self._count(tables, until)
        return [
            answer if isinstance(answer, SlicemillError) else (answer, until)
            for answer in self._join.run(tables, until)
        ]

    def due(self) -> int | None:
        first = self._join.next_ts()
        return None if first is None else first + 1


class JoinStep:
    """The join of one query, among the other operators of its unit."""

    def __init__(self, shared: SharedJoinStep) -> None:
        self._shared = shared

    @property
    def state(self) -> JoinState:
        return self._shared.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        (part,) = self._shared.run(tables, complete)
        if isinstance(part, SlicemillError):
            raise part
        return part

    @property
    def sheds(self) -> Mapping[str, Report]:
        return self._shared.sheds

    def shorten(self, shares: Mapping[str, float]) -> None:
        self._shared.shorten(shares)

    def due(self) -> int | None:
        return self._shared.due()
