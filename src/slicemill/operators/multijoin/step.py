"""Execution steps of multi-way window joins (operators.multijoin)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from slicemill.errors import SlicemillError
from slicemill.operators.context import StepContext, bits_of
from slicemill.operators.in_turn import Due
from slicemill.operators.multijoin.kernel import MultiJoinKernel
from slicemill.operators.multijoin.spec import SharedMultiJoin
from slicemill.operators.multijoin.state import MultiJoinState
from slicemill.operators.step import SharedStep, StatefulStep, StepResult
from slicemill.shedding.accuracy import AccuracySums
from slicemill.shedding.ages import Compared
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


class SharedMultiJoinStep:
    """Shared multi-way join with one result per query."""

    def __init__(self, join: MultiJoinKernel) -> None:
        self._join = join
        self._limited = [member for member in join.members if member.limit is not None]
        self._shares: Mapping[str, float] = {}

    @property
    def state(self) -> MultiJoinState:
        return self._join.state

    @property
    def compared(self) -> Compared:
        return self._join.compared.found()

    def sheds(self, node_id: str) -> Mapping[str, Report]:  # noqa: ARG002
        """Return the shedding reports of its queries, by node name."""
        known = self.state.sheds
        return {member.name: known[member.name] for member in self._limited if member.name in known}

    def set_load(self, node_id: str, dropping: Mapping[str, Dropping]) -> None:  # noqa: ARG002
        """Limit how far these queries reach into their windows in the next run."""
        self._shares = {name: found.share for name, found in dropping.items()}
        self._join.shorten({name: found.reach for name, found in dropping.items() if found.reach < 1})

    def _count(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> None:
        """Estimate shed results: assume that skipped probes match as often as executed probes."""
        for member in self._limited:
            own = [table for input_ in self._join.joined[member.name] if (table := tables[input_]).num_rows]
            rows = sum(table.num_rows for table in own)
            if rows:
                report = self.state.sheds.setdefault(member.name, Report())
                report.arrived += rows
                latest = max(int(pc.max(table.column(TS)).as_py()) for table in own)
                sums = AccuracySums(self._shares.get(member.name, 1.0) * rows, rows)
                report.add(min(latest, self._join.complete(member.name, complete)), sums)

    def bytes_kept(self) -> int:
        return state_bytes({"": self.state}) + self._join.index_bytes

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]:
        answers = self._join.run(tables, complete)
        self._count(tables, complete)
        return [
            answer
            if isinstance(answer, SlicemillError)
            else (answer, self._join.complete(member.name, complete))
            for member, answer in zip(self._join.members, answers, strict=True)
        ]

    def due(self) -> Due | None:
        return self._join.dues() or None


class MultiJoinStep:
    """Multi-way join of a single query, as one operator of its unit."""

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

    @property
    def compared(self) -> Compared:
        return self._shared.compared

    def sheds(self, node_id: str) -> Mapping[str, Report]:
        return self._shared.sheds(node_id)

    def set_load(self, node_id: str, dropping: Mapping[str, Dropping]) -> None:
        self._shared.set_load(node_id, dropping)

    def bytes_kept(self) -> int:
        return self._shared.bytes_kept()

    def due(self) -> Due | None:
        return self._shared.due()
