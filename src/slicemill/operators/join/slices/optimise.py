"""Choice of cuts: Mem-Opt, CPU-Opt, or a weighted objective (S17, S18, S20).

Window ends are nodes, and a slice from one end to a later one is an edge whose length is its cost. The best
chain is the shortest path from age 0 to the longest window. Nodes are sorted, so that one pass over O(N²)
edges finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slicemill.operators.join.slices.chain_cost import span_cost
from slicemill.operators.join.slices.costs import ChainCost
from slicemill.operators.join.slices.members import windows
from slicemill.operators.join.slices.workload import JoinWorkload

Ends = tuple[float, ...]
Objective = Callable[[ChainCost], float]


def by_cpu(cost: ChainCost) -> float:
    """Count comparisons only: the CPU-Opt chain."""
    return cost.cpu


def weighted(cpu: float, memory: float) -> Objective:
    """Return an objective that weighs comparisons and state."""
    return lambda cost: cpu * cost.cpu + memory * cost.memory


def finest(workload: JoinWorkload) -> tuple[Ends, Ends]:
    """Return the Mem-Opt cuts: one at every window (Theorems 5, 6).

    No slice then keeps a row that no query needs.
    """
    return windows(workload.members, 0), windows(workload.members, 1)


def cheapest(workload: JoinWorkload, objective: Objective = by_cpu) -> tuple[Ends, Ends]:
    """Return the cuts of least cost on the left and the right stream.

    If every query has equal windows on both streams, both streams get the same cuts. Otherwise each stream is
    cut alone, since the cost of a span does not depend on the cuts of the other stream.
    """
    left, right = finest(workload)
    if workload.symmetric:
        both = shortest_path(left, lambda a, b: sum(_length(workload, objective, s, a, b) for s in (0, 1)))
        return both, both
    return (
        shortest_path(left, lambda a, b: _length(workload, objective, 0, a, b)),
        shortest_path(right, lambda a, b: _length(workload, objective, 1, a, b)),
    )


def shortest_path(nodes: Sequence[float], length: Callable[[float, float], float]) -> Ends:
    """Return the nodes on the shortest path from 0 to the last node.

    Of equally short paths, the one with longer edges is returned.

    >>> shortest_path([1, 2, 3], lambda start, end: (end - start) ** 2)
    (1, 2, 3)
    >>> shortest_path([1, 2, 3], lambda start, end: 1)
    (3,)
    """
    from_zero = (0.0, *nodes)
    distance = [0.0]
    before = [0]
    for j in range(1, len(from_zero)):
        best, i = min((distance[i] + length(from_zero[i], from_zero[j]), i) for i in range(j))
        distance.append(best)
        before.append(i)
    path = []
    j = len(nodes)
    while j:
        path.append(nodes[j - 1])
        j = before[j]
    return tuple(reversed(path))


def _length(workload: JoinWorkload, objective: Objective, side: int, start: float, end: float) -> float:
    return objective(span_cost(workload, side, start, end))
