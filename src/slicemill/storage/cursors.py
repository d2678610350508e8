"""What consumers have read, and so what a log may free.

A consumer's cursor in a log is the number of the last epoch it has read (-1: none). It stands for the theses'
dummy buffers (DESIGN 2): many queues over one stored copy. An epoch may go once every consumer has passed it
and its retention is over; epochs go in order, so one number says it all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from slicemill.storage.log_epoch import Epoch


@dataclass(frozen=True, slots=True)
class Retention:
    """How long epochs stay although every consumer has read them."""

    age_us: int = 0  # since arrival
    epochs: int = 0  # this many of the newest


def slowest(consumers: Iterable[Mapping[str, int]], log: str) -> int | None:
    """The cursor of the consumer that is furthest behind; None if nobody reads the log."""
    return min((cursors[log] for cursors in consumers if log in cursors), default=None)


def keep_from(
    first: int,
    head: int,
    epoch: Callable[[int], Epoch],
    slowest_cursor: int | None,
    retention: Retention,
    now_us: int,
) -> int:
    """The first epoch of `first` … `head` that has to stay (head + 1: none)."""
    read = head if slowest_cursor is None else min(slowest_cursor, head)
    limit = min(read, head - retention.epochs) + 1
    number = first
    while number < limit and epoch(number).arrival_us + retention.age_us <= now_us:
        number += 1
    return number
