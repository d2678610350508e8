"""Where to cut: every window (Mem-Opt), where it pays (CPU-Opt), or anything between (S17, S18, S20).

Window ends are nodes, a slice from one end to a later one is an edge, its cost the length: the best chain is
the shortest way from age 0 to the longest window. Nodes are in order already, so one pass finds it, in O(N²)
edges.
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
    """Comparisons alone: the CPU-Opt chain."""
    return cost.cpu


def weighted(cpu: float, memory: float) -> Objective:
    """A chain in the middle: comparisons at one price, state at another."""
    return lambda cost: cpu * cost.cpu + memory * cost.memory


def finest(workload: JoinWorkload) -> tuple[Ends, Ends]:
    """Mem-Opt: a cut at every window, so that no slice keeps a tuple that nobody needs (Theorems 5, 6)."""
    return windows(workload.members, 0), windows(workload.members, 1)


def cheapest(workload: JoinWorkload, objective: Objective = by_cpu) -> tuple[Ends, Ends]:
    """The cuts of least cost, on the left and on the right stream.

    Queries with one window for both streams get the same cuts on both; otherwise each stream is cut alone,
    since a span costs the same however the other stream is cut.
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
    """The nodes on the shortest way from 0 to the last node; of equally short ones, the one with longer
    edges.

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
