"""Execution of drop operators, which drop rows before a query under load (S54)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.catalog.queries import UTILITY
from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import SEQ, TS
from slicemill.functions.evaluate import compile_vector
from slicemill.operators.specs import Drop, WholeWindows
from slicemill.operators.step import StepContext
from slicemill.shedding.accuracy import AccuracyReport, AccuracySums
from slicemill.shedding.load import (
    NOTHING,
    SheddingDecision,
    in_whole_windows,
    keep_random,
    keep_useful,
    keep_windows,
)


@stored_as("drop", version=1)
@dataclass(slots=True)
class DropState:
    report: AccuracyReport = field(default_factory=AccuracyReport)


class DropStep:
    """Step that passes a share of its rows and drops the other rows.

    The share is set before each micro-batch.
    """

    def __init__(self, operator: Drop, context: StepContext) -> None:
        self._dropping = NOTHING
        self._operator = operator
        self._state = context.state if isinstance(context.state, DropState) else DropState()
        utility = operator.utility
        self._utility = compile_vector(utility, context.schemas[0]) if utility is not None else None

    @property
    def state(self) -> object:
        return self._state

    def sheds(self, node_id: str) -> Mapping[str, AccuracyReport]:
        return {node_id: self._state.report}

    def set_load(self, node_id: str, dropping: Mapping[str, SheddingDecision]) -> None:
        self._dropping = dropping.get(node_id, NOTHING)

    def due(self) -> int | None:
        return None

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table = tables[0]
        kept = self._rows_to_pass(table)
        if table.num_rows:
            self._count(table, kept)
        if kept is not None:
            table = table.filter(pa.array(kept))
        return table, complete[0]

    def _rows_to_pass(self, table: pa.Table) -> npt.NDArray[np.bool_] | None:
        """Return the mask of rows to pass, or None for all rows."""
        dropping, operator = self._dropping, self._operator
        if not table.num_rows or dropping == NOTHING:
            return None
        times, seqs = (table.column(name).to_numpy() for name in (TS, SEQ))
        if operator.range_us is not None:
            return keep_windows(times, operator.range_us, dropping.skipped)
        if operator.budget.method == UTILITY and self._utility is not None:
            return keep_useful(times, seqs, _numbers(self._utility(table)), dropping.share)
        return keep_random(times, seqs, dropping.share)

    def _count(self, table: pa.Table, kept: npt.NDArray[np.bool_] | None) -> None:
        arrived = table.num_rows
        stayed = arrived if kept is None else int(np.count_nonzero(kept))
        report = self._state.report
        report.arrived += arrived
        report.dropped += arrived - stayed
        # The accuracy of results is estimated as the share of passed rows.
        report.add(int(pc.max(table.column(TS)).as_py()), AccuracySums(float(stayed), arrived))


class WholeWindowsStep:
    """Step that passes only results of windows without dropped rows."""

    def __init__(self, operator: WholeWindows) -> None:
        self._box = operator.box
        self._dropping = NOTHING

    def set_load(self, node_id: str, dropping: Mapping[str, SheddingDecision]) -> None:  # noqa: ARG002
        self._dropping = dropping.get(self._box, NOTHING)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table = tables[0]
        if self._dropping.skipped and table.num_rows:
            whole = in_whole_windows(table.column(TS).to_numpy(), self._dropping.skipped)
            table = table.filter(pa.array(whole))
        return table, complete[0]


def _numbers(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.float64]:
    return np.asarray(pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def drop(operator: Drop, context: StepContext) -> DropStep:
    return DropStep(operator, context)


def whole_windows(operator: WholeWindows, _: StepContext) -> WholeWindowsStep:
    return WholeWindowsStep(operator)
