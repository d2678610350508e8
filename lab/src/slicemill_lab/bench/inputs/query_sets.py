"""Generators of distinct, deterministic queries over one or two streams: filters, windows, OVER, joins.

bid   (auction bigint, bidder bigint, price bigint, …)
offer (auction bigint, seller bigint, reserve bigint, …)      for joins
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import TypeAlias

Make: TypeAlias = Callable[[int, str], str]

WINDOW_SECONDS = (10, 20, 30, 40, 60)
AGGREGATES = ("count(*)", "sum(price)", "max(price)", "min(price)", "avg(price)")
KEYS = ("auction", "bidder")


def filter_query(number: int, stamp: str) -> str:
    """Return a filter with a distinct threshold. Every other filter has a second condition."""
    condition = f"price > {filter_bound(number)}"
    if number % 2:
        condition += f" AND bidder % 10 = {number // 2 % 10}"
    return f"SELECT {stamp}auction, price FROM bid WHERE {condition}"


def filter_bound(number: int) -> int:
    return 100 + 997 * number


def window_query(number: int, stamp: str) -> str:
    """Return a sliding window query: five lengths, two keys, five aggregates."""
    due = "window_end() AS due, " if stamp else ""
    key, length = KEYS[number % 2], window_seconds(number)
    aggregate = AGGREGATES[number // 10 % len(AGGREGATES)]
    return (
        f"SELECT {due}{key}, {aggregate} AS value FROM bid [RANGE {length} SECONDS SLIDE 2 SECONDS] "
        f"WHERE price > {window_bound(number)} GROUP BY {key}"
    )


def window_seconds(number: int) -> int:
    return WINDOW_SECONDS[number // 2 % len(WINDOW_SECONDS)]


def window_bound(number: int) -> int:
    """Return the minimum price. Each fifty windows, distinct by key, length and aggregate, share a price."""
    return number // 50 * 1_000


def over_query(number: int, stamp: str) -> str:
    """Return an aggregate over the last rows, or the last seconds, of each key."""
    key, rows = KEYS[number % 2], 2 + number // 2 % 50
    frame = f"ROWS {rows} PRECEDING" if number % 4 < 2 else f"RANGE {rows} SECONDS PRECEDING"
    aggregate = AGGREGATES[number // 100 % len(AGGREGATES)]
    return f"SELECT {stamp}{key}, {aggregate} OVER (PARTITION BY {key} {frame}) AS value FROM bid"


def join_query(number: int, stamp: str) -> str:  # noqa: ARG001 - the result has no single stamp
    """Return a join of bids with offers of the same auction, with varying windows and prices."""
    return (
        "SELECT B.auction, B.price, O.reserve FROM bid AS B, offer AS O "
        f"WHERE B.auction = O.auction AND B.price > {join_bound(number)} "
        f"WINDOW {join_seconds(number)} SECONDS"
    )


def join_seconds(number: int) -> int:
    return 1 + number % 10


def join_bound(number: int) -> int:
    return number // 10 * 5_000


_KINDS: Mapping[str, Make] = {
    "filter": filter_query,
    "window": window_query,
    "over": over_query,
    "join": join_query,
}


def mixed_queries(count: int, kinds: Sequence[str], stamp: str | None = None) -> dict[str, str]:
    """Return `count` queries of alternating kinds by name. With `stamp`, results start with this column.

    >>> mixed_queries(2, ("filter", "over"), stamp="sent")["filter_0"]
    'SELECT sent, auction, price FROM bid WHERE price > 100'
    """
    numbers = dict.fromkeys(kinds, 0)
    made = {}
    for kind, _ in zip(cycle(kinds), range(count), strict=False):
        number = numbers[kind]
        numbers[kind] += 1
        made[f"{kind}_{number}"] = _KINDS[kind](number, f"{stamp}, " if stamp else "")
    return made
