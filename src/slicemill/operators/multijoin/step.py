"""Window joins of several streams, of one query or of many (operators.multijoin)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.operators.context import StepContext, bits_of
from slicemill.operators.in_turn import Due
from slicemill.operators.multijoin.kernel import MultiJoinKernel
from slicemill.operators.multijoin.spec import SharedMultiJoin
from slicemill.operators.multijoin.state import MultiJoinState
from slicemill.operators.step import SharedStep, StatefulStep, StepResult
from slicemill.storage.state_size import state_bytes


def shared_multi_join(operator: SharedMultiJoin, context: StepContext) -> StatefulStep | SharedStep:
    state = context.state if isinstance(context.state, MultiJoinState) else MultiJoinState()
    sources = dict(zip(operator.inputs, context.node.inputs, strict=True))
    bits = {
        member.name: bits_of([sources[name] for name in member.inputs], context.graph, context.catalog)
        for member in operator.members
    }
    kernel = MultiJoinKernel(
        operator, context.schemas, state, context.newcomers, bits, tied=context.cell.tied
    )
    step = SharedMultiJoinStep(kernel)
    return step if context.graph.has_parts(context.node.id) else MultiJoinStep(step)


class SharedMultiJoinStep:
    """A part for each query: rows of the inputs that it joins go in, in turn."""

    def __init__(self, join: MultiJoinKernel) -> None:
        self._join = join

    @property
    def state(self) -> MultiJoinState:
        return self._join.state

    def bytes_kept(self) -> int:
        return state_bytes({"": self.state}) + self._join.index_bytes

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]:
        return [
            answer
            if isinstance(answer, SlicemillError)
            else (answer, self._join.complete(member.name, complete))
            for member, answer in zip(self._join.members, self._join.run(tables, complete), strict=True)
        ]

    def due(self) -> Due | None:
        return self._join.dues() or None


class MultiJoinStep:
    """The join of one query, among the other operators of its unit."""

    def __init__(self, shared: SharedMultiJoinStep) -> None:
        self._shared = shared

    @property
    def state(self) -> MultiJoinState:
        return self._shared.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        (part,) = self._shared.run(tables, complete)
        if isinstance(part, SlicemillError):
            raise part
        return part

    def bytes_kept(self) -> int:
        return self._shared.bytes_kept()

    def due(self) -> Due | None:
        return self._shared.due()
