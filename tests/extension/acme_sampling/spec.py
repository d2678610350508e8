"""Operator of samplers, and its section of EXPLAIN."""

from __future__ import annotations

from dataclasses import dataclass

from acme_sampling.statement import Sampler

from slicemill.operators.graph import QueryGraph
from slicemill.operators.protocol import ColumnsRead, Description, Operator, OperatorKind, Role


@dataclass(frozen=True, slots=True)
class Sample(Operator):
    """Each n-th row of the input."""

    sampler: Sampler


KINDS = (
    OperatorKind(
        spec=Sample,
        role=Role.STATEFUL,
        words=lambda sample, *_: Description("", "Sample", (("every", f"{sample.sampler.every} rows"),)),
        label=lambda _: "sample",
        columns_read=lambda _, __, wanted: ColumnsRead([], wanted),
        step="acme_sampling.step:sample",
    ),
)


def section(graph: QueryGraph) -> list[str]:
    samplers = [node.operator.sampler for node in graph if isinstance(node.operator, Sample)]
    return [f"{sampler.name}: {sampler.summary}" for sampler in samplers]
