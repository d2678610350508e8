"""Costs of the same queries without sliced state (S6-S8)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from itertools import combinations, product

from slicemill.operators.join.slices.chain_cost import chain_cost, looks
from slicemill.operators.join.slices.costs import ChainCost
from slicemill.operators.join.slices.members import bits, parts, windows
from slicemill.operators.join.slices.spans import span
from slicemill.operators.join.slices.workload import JoinWorkload


def isolated(workload: JoinWorkload) -> ChainCost:
    """Return the cost of a separate join per query, after its selections (S6)."""
    alone = (replace(workload, members=(one,)) for one in workload.members)
    return sum((_one_join(one) for one in alone), ChainCost())


def pull_up(workload: JoinWorkload) -> ChainCost:
    """Return the cost of one join with the longest windows (S7, Eq 4.1).

    Results are routed by age, then selected.
    """
    bare = replace(workload, members=tuple(one.without_predicates() for one in workload.members))
    selected = 0.0
    for side in (0, 1):
        whole = span(workload.members, side, 0, windows(workload.members, side)[-1])
        selected += _results(bare, whole.end) * looks(workload.members, side, whole, among=0)
    return _one_join(bare) + ChainCost(select=selected)


def push_down(workload: JoinWorkload) -> ChainCost:
    """Return the cost of streams split by predicates, then joined (S8, Eq 4.2).

    There is a join per pair of parts, followed by unions. Joins do not share state, so a part of one stream
    is stored once per part of the other.
    """
    left, right = (parts(workload.members, side).items() for side in (0, 1))
    total = ChainCost(split=sum(rate * _tests(workload, side) for side, rate in enumerate(workload.rates)))
    joins_of = [0] * len(workload.members)
    results_of = [0.0] * len(workload.members)
    for (holding_a, a), (holding_b, b) in product(left, right):
        served = a & b
        if not served:
            continue
        members = tuple(workload.members[bit].without_predicates() for bit in bits(served))
        shares = share(workload, 0, holding_a), share(workload, 1, holding_b)
        rates = (workload.rates[0] * shares[0], workload.rates[1] * shares[1])
        join = replace(workload, members=members, rates=rates)
        total += _one_join(join)
        for bit in bits(served):
            joins_of[bit] += 1
            results_of[bit] += sum(_results(join, side.window) for side in workload.members[bit].sides)
    merged = sum(results for joins, results in zip(joins_of, results_of, strict=True) if joins > 1)
    return total + ChainCost(union=merged)


PREDICATES_TO_SPLIT_BY = 6
"""Maximum predicates on a stream for push-down: six make 64 joins, and each further one doubles them."""


def baselines(workload: JoinWorkload) -> Mapping[str, ChainCost]:
    """Return the cost of each plan without slices.

    Push-down is included only for few predicates.
    """
    costs = {"isolated": isolated(workload), "pull-up": pull_up(workload)}
    if all(_tests(workload, side) <= PREDICATES_TO_SPLIT_BY for side in (0, 1)):
        costs["push-down"] = push_down(workload)
    return costs


def share(workload: JoinWorkload, side: int, holding: frozenset[Hashable]) -> float:
    """Return the share of a stream on which exactly these predicates hold.

    Computed by inclusion and exclusion: the rows that fail all other predicates, minus those that also fail
    some of `holding`.
    """
    known = {
        one.sides[side].predicate: one.sides[side].selectivity
        for one in workload.members
        if one.sides[side].predicate is not None
    }
    others = [predicate for predicate in known if predicate not in holding]
    total = 0.0
    for size in range(len(holding) + 1):
        for failing in combinations(holding, size):
            fail = {predicate: known[predicate] for predicate in (*others, *failing)}
            none_holds = 1 - workload.any_of(fail) if fail else 1.0
            total += (-1) ** size * none_holds
    return total


def _one_join(workload: JoinWorkload) -> ChainCost:
    """Return the cost of an ordinary join with a router.

    It is a chain of a single slice.
    """
    ends = [windows(workload.members, side)[-1:] for side in (0, 1)]
    return chain_cost(workload, ends[0], ends[1])


def _results(workload: JoinWorkload, window: float) -> float:
    return workload.rates[0] * workload.rates[1] * window * workload.join_selectivity


def _tests(workload: JoinWorkload, side: int) -> int:
    return len({one.sides[side].predicate for one in workload.members} - {None})
