"""Execution steps of two-way window joins, for one query or several (operators.join)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from slicemill.errors import SlicemillError
from slicemill.operators.cell import WHOLE, HeavyKey
from slicemill.operators.context import StepContext
from slicemill.operators.in_turn import Due, borders, due_in_turn
from slicemill.operators.join.heavy import KeyWork
from slicemill.operators.join.shared import JoinKernel
from slicemill.operators.join.spec import InOrder, SharedJoin
from slicemill.operators.join.state import JoinState
from slicemill.operators.step import SharedStep, StatefulStep, StepResult
from slicemill.shedding.accuracy import AccuracySums
from slicemill.shedding.ages import Compared
from slicemill.shedding.load import Dropping
from slicemill.shedding.report import Report
from slicemill.storage.arrow_schema import TS


def shared_join(operator: SharedJoin, context: StepContext) -> StatefulStep | SharedStep:
    state = context.state if isinstance(context.state, JoinState) else JoinState()
    is_link = _is_link(context)
    # The next link runs in the same cell and reads all results of this one.
    cell = WHOLE if is_link else context.cell
    join = JoinKernel(operator, context.schemas, state, context.newcomers, context.seq_bits, cell)
    limited = [member.name for member in operator.members if member.limit is not None]
    step = SharedJoinStep(join, limited, in_turn=not is_link)
    return step if context.graph.has_parts(context.node.id) else JoinStep(step)


def _is_link(context: StepContext) -> bool:
    """Return True if this join is a link of a longer chain.

    Joins of three or more streams are chains of two-way joins. Such a chain may join the streams in another
    order than FROM. All rows of a timestamp are therefore joined together once the timestamp is complete, and
    are put into the order of FROM at the end.
    """
    graph, own = context.graph, context.node.id
    chained = (node.id for node in graph if isinstance(node.operator, InOrder))
    return any(own in graph.ancestors(node_id) for node_id in chained)


class SharedJoinStep:
    """Shared join with one result per query.

    Rows are read `in_turn`, or timestamp by timestamp.
    """

    def __init__(self, join: JoinKernel, counted: Sequence[str] = (), *, in_turn: bool = True) -> None:
        self._join = join
        self._in_turn = in_turn
        self._counted = counted  # queries that may shed pairs
        self._shares: Mapping[str, float] = {}

    @property
    def state(self) -> JoinState:
        return self._join.state

    @property
    def compared(self) -> Compared:
        return self._join.compared.found()

    @property
    def key_work(self) -> KeyWork:
        return self._join.key_work

    def set_heavy(self, heavy: tuple[HeavyKey, ...]) -> None:
        self._join.set_heavy(heavy)

    def sheds(self, node_id: str) -> Mapping[str, Report]:  # noqa: ARG002
        """Return the shedding reports of its queries, by node name."""
        return {name: self.state.sheds[name] for name in self._counted if name in self.state.sheds}

    def set_load(self, node_id: str, dropping: Mapping[str, Dropping]) -> None:  # noqa: ARG002
        """Limit how far these queries reach into their windows in the next run."""
        self._shares = {name: found.share for name, found in dropping.items()}
        self._join.shorten({name: found.reach for name, found in dropping.items() if found.reach < 1})

    def _count(self, tables: Sequence[pa.Table], until: int) -> None:
        """Estimate shed pairs: assume that skipped pairs match as often as compared pairs."""
        rows = sum(table.num_rows for table in tables) - self._join.foreign
        for name in self._counted if rows else ():
            report = self.state.sheds.setdefault(name, Report())
            report.arrived += rows
            latest = max(int(pc.max(table.column(TS)).as_py()) for table in tables if table.num_rows)
            report.add(min(latest, until), AccuracySums(self._shares.get(name, 1.0) * rows, rows))

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]:
        until = min(complete)
        known = self._join.known(tables, complete) if self._in_turn else [until, until]
        below = borders(known) if self._in_turn else known
        answers = self._join.run(tables, below, until, min(known))
        self._count(tables, until)
        return [answer if isinstance(answer, SlicemillError) else (answer, until) for answer in answers]

    def due(self) -> Due | None:
        firsts = self._join.next_times()
        if self._in_turn:
            return _first(due_in_turn(firsts), self._join.due_unmatched())
        return min((ts + 1 for ts in firsts if ts is not None), default=None)


def _first(waiting: tuple[int, ...] | None, unmatched: tuple[int, ...] | None) -> Due | None:
    """Return the earlier due time of waiting and unmatched rows."""
    if waiting is None or unmatched is None:
        return waiting or unmatched
    return min(waiting, unmatched, key=max)


class JoinStep:
    """Join of a single query, as one operator of its unit."""

    def __init__(self, shared: SharedJoinStep) -> None:
        self._shared = shared

    @property
    def state(self) -> JoinState:
        return self._shared.state

    @property
    def compared(self) -> Compared:
        return self._shared.compared

    @property
    def key_work(self) -> KeyWork:
        return self._shared.key_work

    def set_heavy(self, heavy: tuple[HeavyKey, ...]) -> None:
        self._shared.set_heavy(heavy)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        (part,) = self._shared.run(tables, complete)
        if isinstance(part, SlicemillError):
            raise part
        return part

    def sheds(self, node_id: str) -> Mapping[str, Report]:
        return self._shared.sheds(node_id)

    def set_load(self, node_id: str, dropping: Mapping[str, Dropping]) -> None:
        self._shared.set_load(node_id, dropping)

    def due(self) -> Due | None:
        return self._shared.due()
