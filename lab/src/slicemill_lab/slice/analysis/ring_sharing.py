"""Sharing of rings of slices between queries, and nodes per ring (S51).

Pure functions. A shared ring keeps one state per stream, as long as the longest window, and compares once
for all queries. However, rows pass all nodes of the ring, also for a query with short windows. Rings are
therefore split if sharing takes longer than it saves, and merged again after rates have changed. Symbols
are those of `ring_length`; the cost of a ring is (21.1), with the selectivities of selections.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import inf
from typing import TypeAlias

from slicemill.operators.join.slices.workload import (
    AnyOf,
    Member,
    disjunction_selectivity,
    predicates,
    queries_reaching,
    windows,
)

# Up to this number of queries all partitions are tried; for more, rings are merged pair by pair.
_TRY_ALL = 6
# At a higher load the latency of a ring counts as infinite.
_FULL = 0.95


@dataclass(frozen=True, slots=True)
class RingTimes:
    """Seconds per comparison, insert, purge, transfer and hop (T_j, T_i, T_p, T_s, T_n)."""

    join: float
    insert: float = 0.0
    purge: float = 0.0
    send: float = 0.0
    hop: float = 0.0


@dataclass(frozen=True, slots=True)
class SharedRing:
    """Queries over the same streams on one ring.

    `rates` and `matching` (Sj) are by stream.
    """

    members: tuple[Member, ...]
    rates: tuple[float, ...]
    matching: tuple[float, ...]
    costs: RingTimes
    any_of: AnyOf = disjunction_selectivity

    def slices(self, stream: int) -> list[float]:
        """Return the rows in each logical slice of a stream.

        These are lam · S^ · (w_i - w_(i-1)).
        """
        ends = windows(self.members, stream)
        return [
            self.rates[stream]
            * self._passing(stream, queries_reaching(self.members, stream, start))
            * (end - start)
            for start, end in pairwise((0.0, *ends))
        ]

    def _passing(self, stream: int, among: int) -> float:
        in_front = predicates(self.members, stream, among)
        return self.any_of(in_front) if in_front else 1.0

    @property
    def state(self) -> float:
        """Number of rows in the state."""
        return sum(sum(self.slices(stream)) for stream in range(len(self.rates)))

    @property
    def wanted(self) -> list[float]:
        """By stream, the rate of rows that some query selects."""
        everybody = (1 << len(self.members)) - 1
        return [rate * self._passing(stream, everybody) for stream, rate in enumerate(self.rates)]

    @property
    def rate(self) -> float:
        return sum(self.wanted)

    def _growth(self) -> tuple[float, float]:
        """Return the mean comparisons per arriving row, and its partial results.

        The other streams are probed one after the other: each step compares every partial result of the steps
        before with the whole state of its stream. The mean is taken over the streams of arriving rows.
        """
        kept = [sum(self.slices(stream)) for stream in range(len(self.rates))]
        compared = partials = 0.0
        for source, weight in enumerate(self.wanted):
            partial = 1.0
            for stream in (other for other in range(len(kept)) if other != source):
                partials += weight * partial
                compared += weight * partial * kept[stream]
                partial *= kept[stream] * self.matching[stream]
        return compared / self.rate, partials / self.rate

    def work(self, nodes: int) -> float:
        """Return L_PSP, the time that all nodes together spend on a row."""
        compared, partials = self._growth()
        alone = self.costs.insert + self.costs.purge + self.costs.join * compared
        return alone + (self.costs.send * nodes * partials if nodes > 1 else 0.0)

    def load(self, nodes: int) -> float:
        """Return the utilisation of a node."""
        return self.rate * self.work(nodes) / nodes

    def latency(self, nodes: int) -> float:
        """Return the mean time from arrival to result, tau.

        Infinite if the nodes are overloaded.
        """
        if self.load(nodes) > _FULL:
            return inf
        there = (nodes - 1) / 2 * self.costs.hop
        return there + max(self.work(nodes) / nodes, len(self.rates) * nodes * self.costs.hop)

    def best_length(self, most: int) -> int:
        """Return the number of nodes, up to `most`, with the least latency.

        There is no closed form.
        """
        return min(range(1, most + 1), key=lambda nodes: (self.latency(nodes), self.load(nodes)))


# Partition of the queries, given by index, into rings.
Sharing: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Deployment:
    """Rings by their queries, and the nodes of each.

    `latency` is the mean over all queries.
    """

    rings: Mapping[tuple[int, ...], int]
    latency: float

    @property
    def sharing(self) -> Sharing:
        return tuple(sorted(self.rings))


def deployed(whole: SharedRing, sharing: Sharing, nodes: int) -> Deployment:
    """Assign nodes one by one to the ring that benefits most."""
    rings = {queries: _only(whole, queries) for queries in sharing}
    dealt = dict.fromkeys(rings, 1)
    if len(rings) > nodes:
        return Deployment(dealt, inf)

    def short(queries: tuple[int, ...]) -> tuple[float, float]:
        """Return a ring's overload, and the latency that more nodes would save."""
        ring, now = rings[queries], dealt[queries]
        if ring.load(now) > _FULL:
            return ring.load(now), 0.0
        best = min(ring.latency(more) for more in range(now, now + nodes - sum(dealt.values()) + 1))
        return 0.0, len(queries) * (ring.latency(now) - best)

    while sum(dealt.values()) < nodes:
        neediest = max(rings, key=short)
        if short(neediest) <= (0.0, 0.0):
            break
        dealt[neediest] += 1
    taken = {queries: rings[queries].best_length(most) for queries, most in dealt.items()}
    total = sum(len(queries) * rings[queries].latency(taken[queries]) for queries in rings)
    return Deployment(taken, total / len(whole.members))


def _only(whole: SharedRing, queries: Sequence[int]) -> SharedRing:
    members = tuple(whole.members[place] for place in queries)
    return SharedRing(members, whole.rates, whole.matching, whole.costs, whole.any_of)


def best_deployment(whole: SharedRing, nodes: int) -> Deployment:
    """Return the rings with the least latency on `nodes` nodes.

    All partitions are tried unless there are too many queries.
    """
    places = range(len(whole.members))
    if len(places) <= _TRY_ALL:
        return min((deployed(whole, way, nodes) for way in _partitions(list(places))), key=_order)
    everybody = deployed(whole, (tuple(places),), nodes)
    return min(_merged(whole, tuple((one,) for one in places), nodes), everybody, key=_order)


def _order(deployment: Deployment) -> tuple[float, int]:
    return deployment.latency, sum(deployment.rings.values())


def _merged(whole: SharedRing, sharing: Sharing, nodes: int) -> Deployment:
    """Merge the most beneficial pair of rings until no merge helps.

    Merging also continues while there are more rings than nodes.
    """
    best = deployed(whole, sharing, nodes)
    while len(best.rings) > 1:
        ways = (_with_one(best.sharing, pair) for pair in combinations(best.sharing, 2))
        found = min((deployed(whole, way, nodes) for way in ways), key=_order)
        if found.latency > best.latency or (found.latency == best.latency < inf):
            break
        best = found
    return best


def _with_one(sharing: Sharing, pair: tuple[tuple[int, ...], tuple[int, ...]]) -> Sharing:
    left = tuple(ring for ring in sharing if ring not in pair)
    return tuple(sorted((*left, tuple(sorted((*pair[0], *pair[1]))))))


def _partitions(places: list[int]) -> Iterator[Sharing]:
    """Yield all partitions of a set."""
    if not places:
        yield ()
        return
    first, rest = places[0], places[1:]
    for way in _partitions(rest):
        yield tuple(sorted(((first,), *way)))
        for number, group in enumerate(way):
            yield tuple(sorted((*way[:number], (first, *group), *way[number + 1 :])))


def followed(whole: SharedRing, now: Deployment, nodes: int, worth: float = 0.2) -> Deployment:
    """Return the deployment to use after rates have changed.

    The current sharing is kept unless a change saves at least the share `worth` of the latency, since
    splitting and merging rings moves state.
    """
    here = deployed(whole, now.sharing, nodes)
    best = best_deployment(whole, nodes)
    if here.latency == inf:
        return best if best.latency < inf else here
    return best if best.latency < (1 - worth) * here.latency else here
