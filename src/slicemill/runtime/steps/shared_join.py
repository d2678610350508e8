"""Window joins of two streams, of one query or of many (kernels.join)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.kernels.join.shared import Join, JoinState
from slicemill.plan.operators import Part as PartOperator
from slicemill.plan.operators import SharedJoin
from slicemill.runtime.steps.making import Making
from slicemill.runtime.steps.step import Part, SharedStep, StatefulStep


def shared_join(making: Making) -> StatefulStep | SharedStep | None:
    operator = making.node.operator
    if not isinstance(operator, SharedJoin):
        return None
    state = making.state if isinstance(making.state, JoinState) else JoinState()
    join = Join(operator, making.schemas, state, making.bucket, making.buckets, making.newcomers)
    step = SharedJoinStep(join)
    readers = making.graph.consumers(making.node.id)
    return step if any(isinstance(reader.operator, PartOperator) for reader in readers) else JoinStep(step)


class SharedJoinStep:
    """A part for each query: pairs of rows before the time up to which both inputs are complete."""

    def __init__(self, join: Join) -> None:
        self._join = join

    @property
    def state(self) -> JoinState:
        return self._join.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[Part]:
        until = min(complete)
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

    def due(self) -> int | None:
        return self._shared.due()
