"""A query that comes later, and the state that others have collected (S23).

What is stored for one query serves another on the same stream if it is all that the other would have stored:
no selection stood before it, or the same one, and its columns are there. Each stream is looked at by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from slicemill.esl.types.expression import columns_of, origins_of
from slicemill.esl.types.query import FrameUnit, JoinKind
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.spec import JoinMember, SharedJoin
from slicemill.operators.multijoin.spec import SharedMultiJoin
from slicemill.operators.part.spec import Part

# By member that is new: on each side, the member whose rows are for it as well; nothing where none is.
Covers: TypeAlias = Mapping[str, tuple[str | None, ...]]


def columns_kept(member: JoinMember, side: int) -> frozenset[str]:
    """The columns of one side that a query's results or conditions need of stored rows."""
    read = {column for _, of, column in member.columns if of == side}
    if member.residual is not None:
        read |= {origin.column for origin in origins_of(member.residual) if origin and origin.input == side}
    expires = member.windows[side].expires
    if expires is not None:
        read.add(expires.column)
    return frozenset(read)


def serves(stored: JoinMember, newcomer: JoinMember, side: int) -> bool:
    """Is all that a newcomer may ask of one side's past among what is stored for another query?"""
    wanted = newcomer.selections[side]
    needed = columns_kept(newcomer, side)
    there = stored.side_of(newcomer, side)
    if there is None:
        return False
    if stored.selections[there] != wanted:
        if stored.selections[there] is not None or wanted is None:
            return False
        needed |= columns_of(wanted)
    windows = (stored.windows[there], newcomer.windows[side])
    in_time = all(window.frame is FrameUnit.RANGE for window in windows)
    lived_as_long = windows[0].expires in (None, windows[1].expires)
    return in_time and lived_as_long and "_number" not in needed and needed <= columns_kept(stored, there)


def covers(newcomers: Sequence[JoinMember], others: Sequence[JoinMember]) -> Covers:
    """For each newcomer the query with the longest window whose state serves it, side by side.

    Of rows that were there before nobody knows whether they would have been matched: a join that asks for
    that begins with what comes.
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
    """From when on the results of a query that comes `now` are those of one that was always there.

    `since` has the times from which the others have been there, for those that have not been there always.
    None where a window never ends.
    """
    ends = [now]
    if newcomer.kind is not JoinKind.INNER:
        history = newcomer.history_us
        return None if history is None else now + history
    for side, name in enumerate(covered[newcomer.name]):
        window = newcomer.windows[side].extent
        stored = now
        if name is not None:
            there = others[name].side_of(newcomer, side)
            assert there is not None, "it serves this side"
            reach = others[name].windows[there].extent
            begun = _begun(others[name], there, since.get(name))
            stored = min(now, max(-(2**63) if reach is None else now - reach, begun or -(2**63)))
        if window is None:
            if stored > -(2**63):
                return None
        else:
            ends.append(stored + window)
    return max(ends)


def _begun(stored: JoinMember, side: int, since: int | None) -> int | None:
    """From when on a side's rows are surely all there, of a query that is told to count tuples `since` then.

    One that found rows of others counts from that time with its longest window; what it has of a shorter one
    may have begun later, and is complete at the same time.
    """
    longest, window = stored.history_us, stored.windows[side].extent
    return since if since is None or longest is None or window is None else since + longest - window


def admitted(
    members: Mapping[str, Sequence[JoinMember]],
    joining: Collection[str],
    newcomers: Covers,
    since: Mapping[str, int | None],
) -> tuple[Covers, dict[str, int | None]]:
    """Let queries that join have what is stored for others already, where it serves them.

    `members` are those behind each query, `since` has the time from which each counts tuples; both also for
    those that join, whose time is now. `newcomers` have joined, and nothing is stored for them so far. Gives
    all newcomers, and the times: for one that is served, as if it had come so much earlier.
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
    """The members of shared joins that a result comes from."""
    for node in sorted(graph.ancestors(root)):
        part = graph[node].operator
        shared = graph[graph[node].inputs[0]].operator if isinstance(part, Part) else None
        if isinstance(part, Part) and isinstance(shared, (SharedJoin, SharedMultiJoin)):
            yield next(member for member in shared.members if member.name == part.member)


def _longest_serving(newcomer: JoinMember, others: Sequence[JoinMember], side: int) -> str | None:
    serving = [
        (one.windows[there].extent or 2**63, one.name)
        for one in others
        if serves(one, newcomer, side) and (there := one.side_of(newcomer, side)) is not None
    ]
    return max(serving, key=lambda found: found[0], default=(0, None))[1]
