"""Changes of cuts and queries in a running chain (S21-S23).

Splitting a slice moves no tuples, and merging concatenates two states. A new query finds the stored
tuples, and `add_query` returns the time after which its results are complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from slicemill.errors import SlicemillError
from slicemill.operators.join.slices.coverage import Cut, MergeSlices, SplitSlice, changes
from slicemill.operators.join.slices.workload import Member
from slicemill_oracle.slices.chain import Chain


def split(chain: Chain, number: int, at: Cut) -> None:
    """Split a slice (S21). Later probes move the older tuples to the new slice."""
    start, end = chain.start(number), chain.cuts[number]
    if at in (start, end) or any(not a <= c <= b for a, c, b in zip(start, at, end, strict=True)):
        raise SlicemillError(f"slice {number} goes from {start} to {end}: it cannot be cut at {at}")
    _insert(chain, number + 1)
    chain.cuts.insert(number, at)
    chain.refresh()


def merge(chain: Chain, number: int) -> None:
    """Merge a slice with the next slice, whose queue must be empty (S22)."""
    if chain.queues[number + 1]:
        raise SlicemillError(f"slice {number + 1} must run until its queue is empty before it is merged")
    behind = chain.slices.pop(number + 1)
    for state, older in zip(chain.slices[number].states, behind.states, strict=True):
        state.extendleft(reversed(older))
    del chain.queues[number + 1]
    del chain.cuts[number]
    chain.refresh()


def reshape(chain: Chain, cuts: Sequence[Cut]) -> None:
    """Change the cuts of a chain, except the last cut."""
    for step in changes(chain.cuts, cuts):
        match step:
            case MergeSlices(number):
                while chain.queues[number + 1]:
                    chain.run(number + 1)
                merge(chain, number)
            case SplitSlice(number, at):
                split(chain, number, at)


def add_query(chain: Chain, member: Member, cut: bool = True) -> float:
    """Add a query. Return the time from which its results are complete.

    With `cut`, slices end where its windows end (Mem-Opt). Otherwise a router compares ages after the slice
    in which a window ends. A window longer than all others always gets a new slice.
    """
    if member.query in chain.unions:
        raise SlicemillError(f"the chain serves a query {member.query!r} already")
    chain.drain()
    missing = max(_missing(chain, member, side) for side in (0, 1))
    ends = tuple(side.window for side in member.sides)
    last = chain.cuts[-1]
    if ends[0] > last[0] or ends[1] > last[1]:
        _insert(chain, len(chain.slices))
        chain.cuts.append((max(ends[0], last[0]), max(ends[1], last[1])))
    chain.share((*chain.members, member))
    for side in (0, 1) if cut else ():
        _cut_at(chain, side, ends[side])
    return missing if chain.last_ts is None else chain.last_ts + missing


def remove_query(chain: Chain, query: str) -> None:
    """Remove a query and its state.

    Its cuts stay until the chain is reshaped.
    """
    left = [one for one in chain.members if one.query != query]
    if len(left) == len(chain.members):
        raise SlicemillError(f"the chain serves no query {query!r}")
    if not left:
        raise SlicemillError(f"{query!r} is the last query of the chain: drop the chain instead")
    chain.drain()
    end = (max(one.left.window for one in left), max(one.right.window for one in left))
    chain.cuts[:] = [(min(a, end[0]), min(b, end[1])) for a, b in chain.cuts]
    keep = chain.cuts.index(end) + 1
    del chain.cuts[keep:], chain.slices[keep:], chain.queues[keep:]
    chain.share(left)


def _insert(chain: Chain, index: int) -> None:
    chain.slices.insert(index, chain.new_slice())
    chain.queues.insert(index, deque())


def _missing(chain: Chain, member: Member, side: int) -> float:
    """Return the length by which a window exceeds the completely stored ages."""
    wanted = member.sides[side]
    kept = [
        one.sides[side].window
        for one in chain.members
        if one.sides[side].predicate in (None, wanted.predicate)
    ]
    return max(0, wanted.window - max(kept, default=0))


def _cut_at(chain: Chain, side: int, age: float) -> None:
    """Cut the chain at an age of one stream, if possible of both streams."""
    if any(cut[side] == age for cut in chain.cuts):
        return
    number = next(n for n, cut in enumerate(chain.cuts) if cut[side] > age)
    other = 1 - side
    start, end = chain.start(number)[other], chain.cuts[number][other]
    at = min(max(start, age), end)
    split(chain, number, (age, at) if side == 0 else (at, age))
