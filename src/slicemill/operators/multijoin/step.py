"""Window joins of several streams, of one query or of many (operators.multijoin)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from slicemill.errors import SlicemillError
from slicemill.operators.context import StepContext, bits_of
from slicemill.operators.in_turn import Due
from slicemill.operators.join import warm as join_loops
from slicemill.operators.join.loops import Loop
from slicemill.operators.multijoin import sorting
from slicemill.operators.multijoin.kernel import MultiJoinKernel
from slicemill.operators.multijoin.spec import SharedMultiJoin
from slicemill.operators.multijoin.state import MultiJoinState
from slicemill.operators.step import SharedStep, StatefulStep, StepResult
from slicemill.shedding.accuracy import AccuracySums
from slicemill.shedding.load import Dropping
from slicemill.shedding.report import Report
from slicemill.storage.arrow_schema import TS
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


def warm() -> None:
    """Compile all loops, or read them from Numba's cache, so that no tuple waits for it."""
    join_loops.warm()
    for found in vars(sorting).values():
        if isinstance(found, Loop):
            found.compile()


class SharedMultiJoinStep:
    """A part for each query: rows of all inputs go in timestamp by timestamp."""

    def __init__(self, join: MultiJoinKernel) -> None:
        self._join = join
        self._counted = [member.name for member in join.members if member.limit is not None]
        self._shares: Mapping[str, float] = {}

    @property
    def state(self) -> MultiJoinState:
        return self._join.state

    def bytes_kept(self) -> int:
        return state_bytes({"": self.state}) + self._join.index_bytes

    def sheds(self, node_id: str) -> Mapping[str, Report]:  # noqa: ARG002
        """Of its members, which have the names of nodes."""
        return {name: self.state.sheds[name] for name in self._counted if name in self.state.sheds}

    def set_load(self, node_id: str, dropping: Mapping[str, Dropping]) -> None:  # noqa: ARG002
        """In the next run, reach only so far into these queries' windows."""
        self._shares = {name: found.share for name, found in dropping.items()}
        self._join.shorten({name: share for name, share in self._shares.items() if share < 1})

    def _count(self, tables: Sequence[pa.Table], until: int) -> None:
        """Results that are not looked for cannot be counted: of ages that are equally likely, a share.

        All members but the latest must be young enough.
        """
        for name in self._counted:
            inputs = self._join.joined[name]
            mine = [tables[number] for number in inputs if tables[number].num_rows]
            if mine:
                rows = sum(table.num_rows for table in mine)
                report = self.state.sheds.setdefault(name, Report())
                report.arrived += rows
                latest = max(int(pc.max(table.column(TS)).as_py()) for table in mine)
                share = self._shares.get(name, 1.0) ** (len(inputs) - 1)
                report.add(min(latest, until), AccuracySums(share * rows, rows))

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]:
        until = min(complete)
        self._count(tables, until)
        return [
            answer if isinstance(answer, SlicemillError) else (answer, until)
            for answer in self._join.run(tables, until)
        ]

    def due(self) -> Due | None:
        return min((ts + 1 for ts in self._join.next_times() if ts is not None), default=None)


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

    def sheds(self, node_id: str) -> Mapping[str, Report]:
        return self._shared.sheds(node_id)

    def set_load(self, node_id: str, dropping: Mapping[str, Dropping]) -> None:
        self._shared.set_load(node_id, dropping)

    def due(self) -> Due | None:
        return self._shared.due()
