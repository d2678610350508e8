"""A planned chain: the slices, who needs each, and what it all should cost (S17-S20).

`explain` shows it and both engines run it, so it holds plain data only. Bit k of every mask is `members[k]`.
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
    """One slice: its ages on the left and on the right stream, and its own share of the cost."""

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
    """Slices that together are the longest windows, shared by all members.

    `expected` is the state memory and the comparisons per unit of time of the whole chain, unions included;
    `baselines` is what the same queries would need isolated, with selections pulled up, or pushed down; the
    last is left out where too many predicates would have to split the streams.
    """

    members: tuple[Member, ...]
    slices: tuple[PlannedSlice, ...]
    expected: ChainCost
    baselines: Mapping[str, ChainCost]

    @property
    def ends(self) -> tuple[Ends, Ends]:
        """Where the slices end on the left and on the right stream, one end per slice."""
        return tuple(one.left.end for one in self.slices), tuple(one.right.end for one in self.slices)

    def queries(self, number: int) -> tuple[str, ...]:
        """The queries that take results of slice `number` (from 0)."""
        return tuple(self.members[bit].query for bit in bits(self.slices[number].mask))

    def filters(self, number: int, side: int, probing: bool = False) -> tuple[Hashable, ...]:
        """The predicates whose disjunction a stream's tuples meet before slice `number`; empty: all may pass.

        Tuples to be kept there are judged for the queries that need this stream's span, tuples that come to
        probe for those that need the other stream's. With symmetric windows the two are the same.
        """
        span = self.slices[number].sides[1 - side if probing else side]
        return tuple(predicates(self.members, side, span.mask))


def mem_opt(workload: JoinWorkload) -> PlannedChain:
    """The chain with the least state: a slice per window (S17, S19)."""
    return planned(workload, *finest(workload))


def cpu_opt(workload: JoinWorkload, objective: Objective | None = None) -> PlannedChain:
    """The chain with the fewest comparisons, or with the least of another objective (S18, S20)."""
    return planned(workload, *(cheapest(workload, objective) if objective else cheapest(workload)))


def planned(workload: JoinWorkload, left: Ends, right: Ends) -> PlannedChain:
    """The chain with the given cuts. Where one stream has fewer, its last slices are empty."""
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
