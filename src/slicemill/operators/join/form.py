"""Choice by cost between two forms of a join of several streams (S16, S35).

A tree of two-way joins stores the joined rows of two streams and joins them with the third stream. The
multi-way join has one state per stream and does not store joined rows. The joined rows are found again for
each row of the third stream. The tree is cheaper if few rows of two streams match and many rows of the third
stream probe. The tree needs more memory if many rows match. Costs are counted in comparisons. The tree is
chosen if it saves a larger factor of comparisons than it adds memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from slicemill.catalog.expressions import columns_of, conjuncts
from slicemill.operators.join.slices.workload import ASSUMED, ChainCost
from slicemill.operators.join.spec import JoinMember, SharedJoin, inner_join_of
from slicemill.time import SECOND_US

# cost of one key lookup in about eight state slices, in comparisons of a pair
_LOOK = 8.0

# cost of storing one row, in comparisons of a pair; includes rewrites of state slices
_STORE = 8.0

# The tree of joins must be cheaper by this factor, because the estimated costs are imprecise.
_WORTH = 1.1

# assumed length of an unbounded window in seconds
_ENDLESS = 1e9

# assumed selectivity of a join condition that is not an equality
_THETA = 1 / 3


@dataclass(frozen=True, slots=True)
class JoinedStreams:
    """Streams to be joined: rows per second, windows in seconds, and conditions.

    A condition is (streams in the condition, selectivity). Rows are looked up by the conditions in `keys`.
    Equal expressions of several streams are one key.
    """

    rates: tuple[float, ...]
    windows: tuple[float, ...]
    keys: tuple[tuple[frozenset[int], float], ...] = ()
    others: tuple[tuple[frozenset[int], float], ...] = ()

    def met(self, bound: Collection[int], target: int) -> float:
        """Return the share of rows of stream `target` that have the join keys of a partial result."""
        share = 1.0
        for over, passing in self.keys:
            if target in over and any(one in over for one in bound):
                share *= passing
        return share

    def passing(self, bound: Collection[int], target: int) -> float:
        """Return the selectivity of the non-key conditions tested when stream `target` is joined."""
        share = 1.0
        for over, passing in self.others:
            if target in over and over <= {*bound, target}:
                share *= passing
        return share

    def looks(self, bound: Collection[int], target: int) -> float:
        """Return the cost of looking up one key in the stored rows of stream `target`."""
        keyed = any(target in over and any(one in over for one in bound) for over, _ in self.keys)
        return _LOOK if keyed else 0.0


@dataclass(frozen=True, slots=True)
class JoinFormCosts:
    """Costs of one multi-way join, and of a tree of two-way joins for the same query."""

    multi: ChainCost
    tree: ChainCost

    @property
    def use_tree(self) -> bool:
        """Return True if the tree of two-way joins is clearly cheaper than the multi-way join."""
        return self.tree.cpu * self.tree.memory * _WORTH < self.multi.cpu * self.multi.memory

    @property
    def why(self) -> str:
        """Return the text in which EXPLAIN compares the multi-way join and the tree of two-way joins."""
        return (
            f"one state per stream keeps {self.multi.memory:,.0f} tuples and makes {self.multi.cpu:,.0f} "
            f"comparisons/s, a tree of joins {self.tree.memory:,.0f} and {self.tree.cpu:,.0f}"
        )


def forms_of(streams: JoinedStreams, order: Sequence[int]) -> JoinFormCosts:
    """Return the costs of a multi-way join and of a tree of two-way joins over the same streams.

    The tree joins the streams in the given order.
    """
    return JoinFormCosts(one_state_each(streams), tree_of_joins(streams, order))


def one_state_each(streams: JoinedStreams) -> ChainCost:
    """Return the cost of a multi-way join, which stores the rows of each stream separately.

    Every new row probes the states of all other streams, starting with the state with the fewest matches.
    """
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
    """Return the cost of a chain of two-way joins.

    Joined rows are stored. The size of a joined row is the sum of the sizes of its rows.
    """
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


def forms_from_measures(join: SharedJoin) -> JoinFormCosts | None:
    """Return the costs of the multi-way join and of the tree, computed from measured statistics."""
    known, inner = join.measured, inner_join_of(join)
    if known is None or inner is None:
        return None
    extents = [window.extent for window in inner.windows]
    if None in extents:
        return None
    keys = tuple((frozenset(port for port, _ in equal), known.matching) for equal in inner.equal)
    windows = tuple(max(1, extent or 0) / SECOND_US for extent in extents)
    return forms_of(JoinedStreams(known.rates, windows, keys), tree_order(len(windows), [k for k, _ in keys]))


def shared_state_share(members: Sequence[JoinMember], there: Sequence[JoinMember]) -> float:
    """Return the share of a join's stored rows that other joins already store.

    Streams are assumed to be equally fast, so that the share depends only on windows. Shared rows are also
    sorted and written only once. The cost of probes does not change.
    """
    own, known = _longest(members), _longest(there)
    whole = sum(own.values())
    return sum(min(length, known.get(name, 0)) for name, length in own.items()) / whole if whole else 0.0


def _longest(members: Sequence[JoinMember]) -> dict[str, float]:
    """Map each input to the length of its longest window in seconds.

    The length is multiplied by the assumed selectivity of the query's condition on the input.
    """
    found: dict[str, float] = {}
    for member in members:
        for name, window, selection in zip(member.inputs, member.windows, member.selections, strict=True):
            extent = _ENDLESS if window.extent is None else window.extent / SECOND_US
            length = extent * (1.0 if selection is None else ASSUMED.selected)
            found[name] = max(found.get(name, 0.0), length)
    return found


def tree_order(streams: int, keys: Sequence[frozenset[int]]) -> list[int]:
    """Return the order in which a tree of two-way joins adds the streams.

    The next stream has a key in common with earlier streams if possible.
    """
    order, left = [0], list(range(1, streams))
    while left:
        keyed = [one for one in left if any(one in over and over & set(order) for over in keys)]
        order.append(keyed[0] if keyed else left[0])
        left.remove(order[-1])
    return order


def forms_of_member(member: JoinMember) -> JoinFormCosts | None:
    """Return the costs of both forms of a join from assumed statistics, or None.

    The result is None if a window is unbounded.
    """
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
    windows = tuple(max(1, extent or 0) / SECOND_US for extent in extents)
    order = tree_order(len(windows), [over for over, _ in keys])
    return forms_of(JoinedStreams(rates, windows, keys, others), order)
