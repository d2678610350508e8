"""One state per stream, or a tree of joins of two that stores joined tuples: which costs less (S16, S35).

A tree finds what two streams have in common once and keeps it for the third. With one state per stream,
nothing is kept between, and what two streams have in common is found again for each row of a third. So a tree
pays where few tuples of two streams meet, and many of a third look for them; it takes more memory where many
meet. Comparisons of a pair are the currency, as for chains of slices. The tree is taken where it saves more
comparisons than it takes more memory, both as ratios.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from slicemill.esl.types.expression import columns_of, conjuncts
from slicemill.operators.join.slices.costs import ChainCost
from slicemill.operators.join.slices.statistics import ASSUMED
from slicemill.operators.multijoin.spec import MultiJoinMember, SharedMultiJoin, joined_by

_LOOK = 8.0  # to look for a key costs so many comparisons: there are about eight slices
_STORE = 8.0  # to store a row, and write it anew when slices grow
_WORTH = 1.1  # estimates are no better than that
_SECOND_US = 1_000_000
_ENDLESS = 1e9  # seconds
_THETA = 1 / 3  # of pairs that pass a condition which is no equality


@dataclass(frozen=True, slots=True)
class JoinedStreams:
    """Streams to be joined: tuples per second, windows in seconds, and conditions between them.

    A condition is over some streams, of which a share of combinations passes it. It is a `key` if tuples are
    looked up by it; what is equal in several streams is one key.
    """

    rates: tuple[float, ...]
    windows: tuple[float, ...]
    keys: tuple[tuple[frozenset[int], float], ...] = ()
    others: tuple[tuple[frozenset[int], float], ...] = ()

    def met(self, bound: Collection[int], target: int) -> float:
        """The share of a stream's tuples that one of some joined streams is compared with."""
        share = 1.0
        for over, passing in self.keys:
            if target in over and any(one in over for one in bound):
                share *= passing
        return share

    def passing(self, bound: Collection[int], target: int) -> float:
        """The share of what is met that passes the conditions which can be tested then."""
        share = 1.0
        for over, passing in self.others:
            if target in over and over <= {*bound, target}:
                share *= passing
        return share

    def looks(self, bound: Collection[int], target: int) -> float:
        """What it costs to find what is met."""
        keyed = any(target in over and any(one in over for one in bound) for over, _ in self.keys)
        return _LOOK if keyed else 0.0


@dataclass(frozen=True, slots=True)
class Forms:
    """What both forms cost."""

    multi: ChainCost
    tree: ChainCost

    @property
    def use_tree(self) -> bool:
        """Is the tree cheaper by more than what estimates are worth?"""
        return self.tree.cpu * self.tree.memory * _WORTH < self.multi.cpu * self.multi.memory

    @property
    def why(self) -> str:
        """The figures, in the words of `explain`."""
        return (
            f"one state per stream keeps {self.multi.memory:,.0f} tuples and makes {self.multi.cpu:,.0f} "
            f"comparisons/s, a tree of joins {self.tree.memory:,.0f} and {self.tree.cpu:,.0f}"
        )


def forms_of(streams: JoinedStreams, order: Sequence[int]) -> Forms:
    """Both forms, the tree with streams in this order."""
    return Forms(one_state_each(streams), tree_of_joins(streams, order))


def one_state_each(streams: JoinedStreams) -> ChainCost:
    """Every new tuple looks into the states of all other streams, the one with the fewest to meet first."""
    probe = sum(_probing(streams, source) for source in range(len(streams.rates)))
    kept = sum(rate * window for rate, window in zip(streams.rates, streams.windows, strict=True))
    return ChainCost(memory=kept, probe=probe, overhead=_STORE * sum(streams.rates))


def _probing(streams: JoinedStreams, source: int) -> float:
    bound, partials, spent = [source], streams.rates[source], 0.0
    left = [one for one in range(len(streams.rates)) if one != source]

    def met(target: int) -> float:
        return streams.rates[target] * streams.windows[target] * streams.met(bound, target)

    while left:
        target = min(left, key=lambda one: (not streams.looks(bound, one), met(one)))
        spent += partials * (streams.looks(bound, target) + met(target))
        partials *= met(target) * streams.passing(bound, target)
        bound.append(target)
        left.remove(target)
    return spent


def tree_of_joins(streams: JoinedStreams, order: Sequence[int]) -> ChainCost:
    """Joins of two, one after the other; a joined tuple is as big as its members, and kept like them."""
    first, *others = order
    rate, window, size = streams.rates[first], streams.windows[first], 1
    cost = ChainCost(memory=rate * window, overhead=_STORE * rate)
    bound = [first]
    for target in others:
        own, met, looks = streams.rates[target], streams.met(bound, target), streams.looks(bound, target)
        pairs = (rate * own * streams.windows[target] + own * rate * window) * met
        cost += ChainCost(
            memory=own * streams.windows[target], probe=pairs + looks * (rate + own), overhead=_STORE * own
        )
        rate, window = pairs * streams.passing(bound, target), min(window, streams.windows[target])
        size += 1
        bound.append(target)
        if target != others[-1]:
            cost += ChainCost(memory=size * rate * window, overhead=_STORE * rate)
    return cost


def measured_forms(join: SharedMultiJoin) -> Forms | None:
    """Both forms of one join with the longest windows of all members, by what was measured of its streams."""
    known, inner = join.measured, joined_by(join)
    if known is None or inner is None:
        return None
    extents = [window.extent for window in inner.windows]
    if None in extents:
        return None
    keys = tuple((frozenset(port for port, _ in equal), known.matching) for equal in inner.equal)
    windows = tuple(max(1, extent or 0) / _SECOND_US for extent in extents)
    return forms_of(JoinedStreams(known.rates, windows, keys), tree_order(len(windows), [k for k, _ in keys]))


def saved_by_sharing(members: Sequence[MultiJoinMember], there: Sequence[MultiJoinMember]) -> float:
    """The share of what some joins would keep by themselves that is kept for others anyway.

    By what is assumed of streams: they are equally fast, so windows say it. Rows that are stored for others
    are also sorted and written for them; probes are the same, and go together where they begin alike.
    """
    own, known = _longest(members), _longest(there)
    whole = sum(own.values())
    return sum(min(length, known.get(name, 0)) for name, length in own.items()) / whole if whole else 0.0


def _longest(members: Sequence[MultiJoinMember]) -> dict[str, float]:
    """The longest window on each input, in seconds; a share of them passes a selection."""
    found: dict[str, float] = {}
    for member in members:
        for name, window, selection in zip(member.inputs, member.windows, member.selections, strict=True):
            extent = _ENDLESS if window.extent is None else window.extent / _SECOND_US
            length = extent * (1.0 if selection is None else ASSUMED.selected)
            found[name] = max(found.get(name, 0.0), length)
    return found


def tree_order(streams: int, keys: Sequence[frozenset[int]]) -> list[int]:
    """The order of a tree: each stream has a key in common with those before it, where that is possible."""
    order, left = [0], list(range(1, streams))
    while left:
        keyed = [one for one in left if any(one in over and over & set(order) for over in keys)]
        order.append(keyed[0] if keyed else left[0])
        left.remove(order[-1])
    return order


def forms_of_member(member: MultiJoinMember) -> Forms | None:
    """Both forms of a join, by what is assumed of streams; None where a window never ends."""
    extents = [window.extent for window in member.windows]
    if None in extents:
        return None
    rates = tuple(
        ASSUMED.rates[0] * (1.0 if selection is None else ASSUMED.selected) for selection in member.selections
    )
    keys = tuple((frozenset(side for side, _ in equal), ASSUMED.matching) for equal in member.equal)
    others = tuple(
        (frozenset(int(name.split(".", 1)[0]) for name in columns_of(part)), _THETA)
        for part in conjuncts(member.residual)
    )
    windows = tuple(max(1, extent or 0) / _SECOND_US for extent in extents)
    order = tree_order(len(windows), [over for over, _ in keys])
    return forms_of(JoinedStreams(rates, windows, keys, others), order)
