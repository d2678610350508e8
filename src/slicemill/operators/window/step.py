"""Execution steps of window operators, and the interface of the strategies that evaluate windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from slicemill.columns.order import Numbering
from slicemill.errors import SlicemillError
from slicemill.operators.step import StepResult

# Output of one query: (rows or None, output watermark), or the error of a failed query.
Emission: TypeAlias = tuple[pa.Table | None, int] | SlicemillError


@dataclass(frozen=True, slots=True)
class WindowOutput:
    """Output schema of one query, and the numbering that assigns sequence numbers to its rows.

    `numbering` is None if the strategy has already assigned the sequence numbers.
    """

    schema: pa.Schema
    numbering: Numbering | None = None


class WindowStrategy(Protocol):
    """Strategy that evaluates the windows of one query or several queries.

    A checkpoint stores `state`. `outputs` has one element for each query.
    """

    @property
    def outputs(self) -> Sequence[WindowOutput]: ...

    @property
    def state(self) -> object: ...

    def advance(self, rows: pa.Table, watermark: int) -> Sequence[Emission]:
        """Add new rows, advance to a watermark, and return the output of each query.

        State that no later window reads is evicted.
        """
        ...

    def due(self) -> int | None:
        """Return the watermark at which the next window ends; None if no window is open."""
        ...


class SharedWindowStep:
    """Execution step of window aggregates of several queries, which one strategy evaluates."""

    def __init__(self, strategy: WindowStrategy) -> None:
        self._strategy = strategy

    @property
    def state(self) -> object:
        return self._strategy.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> list[StepResult]:
        results: list[StepResult] = []
        emissions = self._strategy.advance(tables[0], complete[0])
        for emission, output in zip(emissions, self._strategy.outputs, strict=True):
            if isinstance(emission, SlicemillError):
                results.append(emission)
                continue
            rows, watermark = emission
            if rows is None:
                table = output.schema.empty_table()
            else:
                table = rows.select(output.schema.names).cast(output.schema)
                if output.numbering is not None:
                    table = output.numbering.apply(table)
            results.append((table, watermark))
        return results

    def due(self) -> int | None:
        return self._strategy.due()


class WindowStep:
    """Execution step of window aggregates of a single query, which a strategy evaluates."""

    def __init__(self, strategy: WindowStrategy) -> None:
        self._shared = SharedWindowStep(strategy)

    @property
    def state(self) -> object:
        return self._shared.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        (result,) = self._shared.run(tables, complete)
        if isinstance(result, SlicemillError):
            raise result
        return result

    def due(self) -> int | None:
        return self._shared.due()
