"""Where to cut a fork whose branches share tuples: nested forks, any selectivity, weighted outputs (M8, M9).

The chart of a node is its own work, which delivers nothing unless it feeds a sink, followed by its branches
steepest first. Partitioning that chart keeps a branch with the node while it raises the mean output rate;
the rest is cut off and reads the shared buffer later. It holds for out-trees: components with a union or a
join are not cut (M10).
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill_lab.charts.charts import LEAST_TIME, Number, steepest_first
from slicemill_lab.charts.partition import partition


@dataclass(frozen=True, slots=True)
class ForkNode:
    """An operator of an out-tree with the operators and sinks that read its output.

    `sinks` has the user's weight of each output it delivers itself (M4); 1 where there is none.
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
    """Operators to run depth first as one unit, in this order; figures per tuple in the tree's input.

    `drop` is the weighted number of outputs.
    """

    members: tuple[str, ...]
    time: Number
    drop: Number

    def scaled(self, factor: Number) -> ForkPartition:
        """The same partition for `factor` tuples; its slope stays."""
        return ForkPartition(self.members, self.time * factor, self.drop * factor)


def fork_partitions(node: ForkNode) -> list[ForkPartition]:
    """The tree's partitions, steepest first; the first one holds the node itself."""
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
