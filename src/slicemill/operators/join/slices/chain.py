"""Planned chain of slices: the queries of each slice, and expected costs (S17-S20).

EXPLAIN shows the chain and both engines execute it, so it is plain data. Bit k of every mask is `members[k]`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from slicemill.operators.join.slices.baselines import baselines
from slicemill.operators.join.slices.chain_cost import chain_cost, span_cost
from slicemill.operators.join.slices.costs import ChainCost
from slicemill.operators.join.slices.members import Member, bits, predicates
from slicemill.operators.join.slices.optimise import Ends, Objective, cheapest, finest
from slicemill.operators.join.slices.spans import AgeSpan, spans
from slicemill.operators.join.slices.workload import JoinWorkload


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """Slice with its ages on both streams and its share of the cost."""

    left: AgeSpan
    right: AgeSpan
    expected: ChainCost

    @property
    def sides(self) -> tuple[AgeSpan, AgeSpan]:
        return self.left, self.right

    @property
    def mask(self) -> int:
        """The queries that need this slice."""
        return self.left.mask | self.right.mask


@dataclass(frozen=True, slots=True)
class PlannedChain:
    """Slices that together cover the longest windows, shared by all queries.

    `expected` is the state memory, and the comparisons per unit of time, of the whole chain including unions.
    `baselines` are the costs of the same queries in isolated plans, with selections pulled up, or pushed
    down; push-down is omitted if too many predicates would have to split the streams.
    """

    members: tuple[Member, ...]
    slices: tuple[PlannedSlice, ...]
    expected: ChainCost
    baselines: Mapping[str, ChainCost]

    @property
    def ends(self) -> tuple[Ends, Ends]:
        """Ages at which the slices end on the left and the right stream."""
        return tuple(one.left.end for one in self.slices), tuple(one.right.end for one in self.slices)

    def queries(self, number: int) -> tuple[str, ...]:
        """Return the queries that read results of slice `number` (from 0)."""
        return tuple(self.members[bit].query for bit in bits(self.slices[number].mask))

    def filters(self, number: int, side: int, probing: bool = False) -> tuple[Hashable, ...]:
        """Return the predicates whose disjunction filters a stream before a slice.

        Empty if all rows pass. Stored rows are filtered for the queries that need this stream's span, probing
        rows for the queries that need the other stream's span. With symmetric windows the two are the same.
        """
        span = self.slices[number].sides[1 - side if probing else side]
        return tuple(predicates(self.members, side, span.mask))


def mem_opt(workload: JoinWorkload) -> PlannedChain:
    """Return the chain with the least state: a slice per window (S17, S19)."""
    return planned(workload, *finest(workload))


def cpu_opt(workload: JoinWorkload, objective: Objective | None = None) -> PlannedChain:
    """Return the chain with the fewest comparisons, or the least `objective` (S18, S20)."""
    return planned(workload, *(cheapest(workload, objective) if objective else cheapest(workload)))


def planned(workload: JoinWorkload, left: Ends, right: Ends) -> PlannedChain:
    """Return the chain with the given cuts.

    If one stream has fewer cuts, its last slices are empty.
    """
    members = workload.members
    pieces = zip_longest(spans(members, 0, left), spans(members, 1, right))
    slices = tuple(
        PlannedSlice(
            a or AgeSpan(left[-1], left[-1], 0),
            b or AgeSpan(right[-1], right[-1], 0),
            sum(
                (span_cost(workload, s, one.start, one.end) for s, one in enumerate((a, b)) if one),
                ChainCost(),
            ),
        )
        for a, b in pieces
    )
    return PlannedChain(members, slices, chain_cost(workload, left, right), baselines(workload))
