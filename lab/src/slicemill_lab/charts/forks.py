"""Optimal cuts of forks whose branches share tuples: nested, any selectivity, weighted outputs (M8, M9).

The chart of a node starts with its own work, which delivers nothing unless it feeds a sink, followed by its
branches, steepest first. The partition of that chart keeps a branch with the node while the branch raises the
mean output rate. The other branches are cut off and read the shared buffer later. The method applies to
out-trees; components with a union or a join are not cut (M10).
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill_lab.charts.charts import LEAST_TIME, Number, steepest_first
from slicemill_lab.charts.partition import partition


@dataclass(frozen=True, slots=True)
class ForkNode:
    """Operator of an out-tree, with the operators and sinks that read its output.

    `sinks` has the user's weight of each of its own outputs (M4), by default 1.
    """

    name: str
    time: Number
    selectivity: Number = 1
    consumers: tuple[ForkNode, ...] = ()
    sinks: tuple[Number, ...] = ()

    def __post_init__(self) -> None:
        if self.time < 0 or self.selectivity < 0:
            raise ValueError(f"node {self.name!r}: time and selectivity must not be negative")
        if not self.consumers and not self.sinks:
            raise ValueError(f"nothing reads the output of node {self.name!r}")
        if self.time == 0:
            object.__setattr__(self, "time", LEAST_TIME)


@dataclass(frozen=True, slots=True)
class ForkPartition:
    """Operators that run depth first as one task, in this order. Figures are per input tuple of the tree.

    `drop` is the weighted number of outputs.
    """

    members: tuple[str, ...]
    time: Number
    drop: Number

    def scaled(self, factor: Number) -> ForkPartition:
        """Return the partition for `factor` tuples, with the same slope."""
        return ForkPartition(self.members, self.time * factor, self.drop * factor)


def fork_partitions(node: ForkNode) -> list[ForkPartition]:
    """Return the partitions of the tree, steepest first. The first one contains the node itself."""
    below = [
        part.scaled(node.selectivity) for consumer in node.consumers for part in fork_partitions(consumer)
    ]
    own = ForkPartition((node.name,), node.time, node.selectivity * sum(node.sinks))
    pieces = [own, *steepest_first(below)]
    return [
        ForkPartition(
            tuple(name for piece in pieces[segment.start : segment.stop] for name in piece.members),
            segment.time,
            segment.drop,
        )
        for segment in partition(pieces)
    ]
