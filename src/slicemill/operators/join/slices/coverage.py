"""Reuse of a join's stored rows by a query that is added later (S23).

A new query can use the rows stored for another query if they include all rows that the new query would have
stored. The other query must have no selection on the stream, or the same selection, and must store the
columns that the new query needs. Each stream is considered separately.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from slicemill.catalog.expressions import columns_of, origins_of
from slicemill.catalog.queries import FrameUnit, JoinKind
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.spec import JoinMember, SharedJoin
from slicemill.operators.specs import Part

# map from a new query to the older queries whose stored rows it uses: one query or None per join input
Covers: TypeAlias = Mapping[str, tuple[str | None, ...]]


def columns_to_store(member: JoinMember, side: int) -> frozenset[str]:
    """Return the columns of one input that a join has to store for a query."""
    read = {column for _, of, column in member.columns if of == side}
    if member.residual is not None:
        read |= {origin.column for origin in origins_of(member.residual) if origin and origin.input == side}
    expires = member.windows[side].expires
    if expires is not None:
        read.add(expires.column)
    return frozenset(read)


def serves(stored: JoinMember, newcomer: JoinMember, side: int) -> bool:
    """Return True if the rows stored for query `stored` include all rows that query `newcomer` needs."""
    wanted = newcomer.selections[side]
    needed = columns_to_store(newcomer, side)
    there = stored.side_of(newcomer.inputs[side])
    if there is None:
        return False
    if stored.selections[there] != wanted:
        if stored.selections[there] is not None or wanted is None:
            return False
        needed |= columns_of(wanted)
    windows = (stored.windows[there], newcomer.windows[side])
    in_time = all(window.frame is FrameUnit.RANGE for window in windows)
    lived_as_long = windows[0].expires in (None, windows[1].expires)
    return in_time and lived_as_long and "_number" not in needed and needed <= columns_to_store(stored, there)


def covers(newcomers: Sequence[JoinMember], others: Sequence[JoinMember]) -> Covers:
    """Map each new query to the older queries whose stored rows it uses.

    Of all suitable queries, the query with the longest window is chosen. Outer, semi and anti joins start
    empty, because it is unknown which earlier rows have a match.
    """
    return {
        one.name: tuple(
            _longest_serving(one, others, side) if one.kind is JoinKind.INNER else None
            for side in range(len(one.windows))
        )
        for one in newcomers
    }


def complete_from(
    newcomer: JoinMember,
    others: Mapping[str, JoinMember],
    covered: Covers,
    since: Mapping[str, int],
    now: int,
) -> int | None:
    """Return the time from which a new query's results are complete.

    From this time on, the results equal those of a query that has always existed. `since` has the start of
    each query that has not always existed. The result is None if the results never become complete, because a
    window is unbounded.
    """
    ends = [now]
    if newcomer.kind is not JoinKind.INNER:
        history = newcomer.history_us
        return None if history is None else now + history
    for side, name in enumerate(covered[newcomer.name]):
        window = newcomer.windows[side].extent
        stored = now
        if name is not None:
            there = others[name].side_of(newcomer.inputs[side])
            assert there is not None, "it serves this side"
            reach = others[name].windows[there].extent
            begun = _side_complete_from(others[name], there, since.get(name))
            stored = min(now, max(-(2**63) if reach is None else now - reach, begun or -(2**63)))
        if window is None:
            if stored > -(2**63):
                return None
        else:
            ends.append(stored + window)
    return max(ends)


def _side_complete_from(stored: JoinMember, side: int, since: int | None) -> int | None:
    """Return the time from which the rows stored for a query are complete on one side of its join.

    The results of the query are complete from `since` plus its longest window on. Rows of a shorter window
    then only have to be complete from a later time on.
    """
    longest, window = stored.history_us, stored.windows[side].extent
    return since if since is None or longest is None or window is None else since + longest - window


def admit_queries(
    members: Mapping[str, Sequence[JoinMember]],
    joining: Collection[str],
    newcomers: Covers,
    since: Mapping[str, int | None],
) -> tuple[Covers, dict[str, int | None]]:
    """Choose for each added query the older queries whose stored rows it uses.

    `members` are the joins of each query. `since` is the start of each query, which is now for queries in
    `joining`. `newcomers` were added before, and have no stored rows yet. Returns all newcomers, and the
    start of each query. The start of a query that uses stored rows is earlier than now.
    """
    stored = [
        (query, member)
        for query, found in members.items()
        for member in found
        if query not in joining and member.name not in newcomers
    ]
    others = {member.name: member for _, member in stored}
    began = {member.name: ts for query, member in stored if (ts := since[query]) is not None}
    found, times = dict(newcomers), dict(since)
    for query in joining:
        covered = covers(members[query], list(others.values()))
        found.update(covered)
        now = since[query]
        if now is not None:
            known = [
                whole - longest
                for member in members[query]
                if (whole := complete_from(member, others, covered, began, now)) is not None
                and (longest := member.history_us) is not None
            ]
            times[query] = max(known, default=now)
    return found, times


def members_behind(graph: QueryGraph, root: str) -> Iterator[JoinMember]:
    """Yield each join on which a query's result depends, as this query's member of a shared join."""
    for node in sorted(graph.ancestors(root)):
        part = graph[node].operator
        shared = graph[graph[node].inputs[0]].operator if isinstance(part, Part) else None
        if isinstance(part, Part) and isinstance(shared, SharedJoin):
            yield next(member for member in shared.members if member.name == part.member)


def _longest_serving(newcomer: JoinMember, others: Sequence[JoinMember], side: int) -> str | None:
    serving = [
        (one.windows[there].extent or 2**63, one.name)
        for one in others
        if serves(one, newcomer, side) and (there := one.side_of(newcomer.inputs[side])) is not None
    ]
    return max(serving, key=lambda found: found[0], default=(0, None))[1]


# A new set of slice borders is reached in steps, each of which merges two slices or splits one slice (S23).
# The steps are correct in any order, because they do not change the set of stored rows.
# The merges run first and remove all slice borders that the new set does not have.


Cut = tuple[float, float]
"""Border of a state slice: the ages at which it ends on the left and on the right stream."""


@dataclass(frozen=True, slots=True)
class SplitSlice:
    """Step that splits state slice `number`, counted from 0, at the ages `at`."""

    number: int
    at: Cut


@dataclass(frozen=True, slots=True)
class MergeSlices:
    """Step that merges state slice `number`, counted from 0, with the next slice."""

    number: int


def changes(old: Sequence[Cut], new: Sequence[Cut]) -> Iterator[SplitSlice | MergeSlices]:
    """Yield the merges and splits that change the slice borders `old` to the slice borders `new`.

    Both lists have the same last border.

    >>> list(changes([(1, 1), (2, 2), (4, 4)], [(2, 2), (3, 3), (4, 4)]))
    [MergeSlices(number=0), SplitSlice(number=1, at=(3, 3))]
    """
    wanted = set(new)
    now = list(old)
    for cut in old[:-1]:
        if cut not in wanted:
            number = now.index(cut)
            yield MergeSlices(number)
            del now[number]
    for number, cut in enumerate(new):
        if now[number] != cut:
            yield SplitSlice(number, cut)
            now.insert(number, cut)
