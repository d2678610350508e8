"""Step of samplers, row by row."""

from __future__ import annotations

from collections.abc import Sequence

from acme_sampling.spec import Sample

from slicemill.operators.row_step import RowStep, row_step
from slicemill.operators.step import StepContext
from slicemill.types import Timed


class SampleRows:
    """Pass each n-th row; the state is the number of rows so far."""

    inputs = 1
    waits_for_time = False

    def __init__(self, every: int) -> None:
        self._every, self._count = every, 0

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        self._count += 1
        return () if self._count % self._every else (tuple_,)

    def advance(self, ts: int) -> Sequence[Timed]:
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()

    def state(self) -> int:
        return self._count

    def restore(self, state: int) -> None:
        self._count = state


def sample(operator: Sample, context: StepContext) -> RowStep:
    return row_step(SampleRows(operator.sampler.every), context)


TWINS = {Sample: lambda operator, _: SampleRows(operator.sampler.every)}
