"""Operator of samplers, and its section of EXPLAIN."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acme_sampling.statement import Sampler

from slicemill.operators.graph import QueryGraph
from slicemill.operators.protocol import ColumnsRead, Description, Operator, OperatorKind, Role

if TYPE_CHECKING:
    from slicemill.operators.graph import Node


@dataclass(frozen=True, slots=True)
class Sample(Operator):
    """Each n-th row of the input."""

    sampler: Sampler


class SampleKind(OperatorKind[Sample]):
    spec = Sample
    role = Role.STATEFUL
    step = "acme_sampling.step:sample"

    def words(self, sample: Sample, node: Node, graph: QueryGraph) -> Description:
        return Description("", "Sample", (("every", f"{sample.sampler.every} rows"),))

    def label(self, sample: Sample) -> str:
        return "sample"

    def columns_read(self, sample: Sample, port: int, wanted: Collection[str]) -> ColumnsRead:
        return ColumnsRead([], wanted)


KINDS = (SampleKind(),)


def section(graph: QueryGraph) -> list[str]:
    samplers = [node.operator.sampler for node in graph if isinstance(node.operator, Sample)]
    return [f"{sampler.name}: {sampler.summary}" for sampler in samplers]
