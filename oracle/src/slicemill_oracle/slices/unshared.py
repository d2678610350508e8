"""Window joins of several queries without slices: isolated, pull-up, push-down (S6-S8).

All alternatives count the same comparisons and emit the same results as a chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slicemill.operators.join.slices.workload import Member, bits, parts, windows
from slicemill.types import Timed
from slicemill_oracle.slices.chain import Chain
from slicemill_oracle.slices.counters import Counters
from slicemill_oracle.slices.items import SliceDelivery
from slicemill_oracle.slices.selection import Evaluate, SliceSelection, evaluate_predicate
from slicemill_oracle.slices.time_slice import Condition


class QueriesJoin(Protocol):
    """A join of two streams for several queries."""

    @property
    def counters(self) -> Counters: ...

    @property
    def state_size(self) -> int: ...

    def process(self, side: int, tuple_: Timed) -> list[SliceDelivery]:
        """Process a tuple. Return results with their queries."""
        ...


def one_join(
    members: Sequence[Member],
    condition: Condition,
    evaluate: Evaluate = evaluate_predicate,
    pulled_up: bool = False,
) -> Chain:
    """Return a chain of one slice, which is a regular window join.

    A router compares ages if windows differ (S3, S9).
    """
    ends = windows(members, 0)[-1:], windows(members, 1)[-1:]
    return Chain(members, ends, condition, evaluate=evaluate, pulled_up=pulled_up)


def pull_up(
    members: Sequence[Member], condition: Condition, evaluate: Evaluate = evaluate_predicate
) -> Chain:
    """Return one join with the longest windows, followed by routing and filters (S7)."""
    return one_join(members, condition, evaluate, pulled_up=True)


class IsolatedJoins:
    """Every query has its own filter and join (S6)."""

    def __init__(
        self, members: Sequence[Member], condition: Condition, evaluate: Evaluate = evaluate_predicate
    ) -> None:
        self.joins = [one_join([one], condition, evaluate) for one in members]

    @property
    def counters(self) -> Counters:
        return sum((join.counters for join in self.joins), Counters())

    @property
    def state_size(self) -> int:
        return sum(join.state_size for join in self.joins)

    def process(self, side: int, tuple_: Timed) -> list[SliceDelivery]:
        return [delivery for join in self.joins for delivery in join.process(side, tuple_)]


class PushDown:
    """Splits streams by predicates and joins each pair of parts (S8).

    Unions merge the results by timestamp.
    """

    def __init__(
        self, members: Sequence[Member], condition: Condition, evaluate: Evaluate = evaluate_predicate
    ) -> None:
        self._selections = [SliceSelection(members, side, evaluate) for side in (0, 1)]
        self._own = Counters()
        masks = [list(parts(members, side).values()) for side in (0, 1)]
        self.joins: dict[tuple[int, int], Chain] = {}
        for left in masks[0]:
            for right in masks[1]:
                if served := left & right:
                    bare = [members[bit].without_predicates() for bit in bits(served)]
                    self.joins[left, right] = one_join(bare, condition)
        serving = [one.query for join in self.joins.values() for one in join.members]
        self._merged = {query for query in serving if serving.count(query) > 1}

    @property
    def counters(self) -> Counters:
        return sum((join.counters for join in self.joins.values()), self._own)

    @property
    def state_size(self) -> int:
        return sum(join.state_size for join in self.joins.values())

    def process(self, side: int, tuple_: Timed) -> list[SliceDelivery]:
        mask = self._selections[side].mask(tuple_.row)
        self._own.split += self._selections[side].tests
        deliveries = [
            delivery
            for parts_, join in self.joins.items()
            if parts_[side] == mask
            for delivery in join.process(side, tuple_)
        ]
        # one merge step per result of a query that several joins serve
        self._own.union += sum(delivery.query in self._merged for delivery in deliveries)
        return deliveries
