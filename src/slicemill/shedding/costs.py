"""Cost of dropping one tuple, by the definition (L15, L23)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill.shedding.chains import NewestTuple, Tuple
from slicemill.shedding.methods import Method


def run_around(kept: Sequence[Tuple], place: int) -> tuple[int, int]:
    """Return the first and last position of the run around a kept tuple."""
    first = last = place
    while first > 0 and kept[first].goes_on(kept[first - 1].values, kept[first - 1].end):
        first -= 1
    while last + 1 < len(kept) and kept[last + 1].goes_on(kept[last].values, kept[last].end):
        last += 1
    return first, last


def cost(
    kept: Sequence[Tuple], place: int, follower: NewestTuple | None, method: Method, whole: int | None = None
) -> tuple[float, bool]:
    """Return a tuple's cost, and True if dropping it splits its run.

    `kept` are the tuples of the partition in order of time. Lost time is a share of the run of kept
    neighbours, or of `whole`, the original length of the run (L15).
    """
    first, last = run_around(kept, place)
    begin, end, dropped = kept[first].begin, kept[last].end, kept[place]
    grows = method.lookahead and follower is not None and follower.goes_on(kept[last].values, end)
    inner = place > first and (place < last or grows)
    of = end - begin if whole is None else whole
    if method.threshold is None or grows:
        return method.split * inner + method.lost * ((dropped.end - dropped.begin) / of), inner
    if end - begin < method.threshold:
        return 0.0, inner
    parts = [part for part in (dropped.begin - begin, end - dropped.end) if part and part >= method.threshold]
    lost = (end - begin - sum(parts)) / of
    return method.split * max(0, len(parts) - 1) + method.lost * lost, inner
