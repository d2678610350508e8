"""Execution of query sinks."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slicemill.operators.specs import QueryResults
from slicemill.operators.step import StepContext


class SinkStep:
    """Passes rows through unchanged. The log of the query stores the rows."""

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return tables[0], complete[0]


def sink(_: QueryResults, __: StepContext) -> SinkStep:
    return SinkStep()
