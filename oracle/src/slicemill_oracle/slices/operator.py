"""Shared window join as an operator of the reference engine."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill.types import Timed
from slicemill_oracle.slices.unshared import QueriesJoin


class SlicedJoinOperator:
    """Emits left values, right values, and the name of the query.

    Downstream, one filter per query selects the rows of that query.
    """

    inputs = 2
    waits_for_time = True

    def __init__(self, join: QueriesJoin) -> None:
        self.join = join

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        return [Timed(result.ts, (*result.row, query)) for query, result in self.join.process(port, tuple_)]

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()
