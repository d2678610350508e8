"""Retention: the epochs of a log that every consumer has read and whose retention time is over.

A consumer's cursor in a log is the number of the last epoch it has read (-1: none). It stands for the theses'
dummy buffers: many queues over one stored copy. Epochs go in order, so one number says it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slicemill.storage.log import Log


@dataclass(frozen=True, slots=True)
class Retention:
    """How long epochs stay although every consumer has read them."""

    age_us: int = 0  # since arrival
    epochs: int = 0  # this many of the newest


def slowest(consumers: Iterable[Mapping[str, int]], log: str) -> int | None:
    """The cursor of the consumer that is furthest behind; None if nobody reads the log."""
    return min((cursors[log] for cursors in consumers if log in cursors), default=None)


def epochs_to_free(
    logs: Iterable[Log], consumers: Sequence[Mapping[str, int]], kept_us: Mapping[str, int], now_us: int
) -> dict[str, int]:
    """By log the first epoch that stays, for those that have something to free; for `Change.freed`."""
    freed = {}
    for log in logs:
        retention = Retention(age_us=kept_us.get(log.name, 0))
        first = keep_from(log, slowest(consumers, log.name), retention, now_us)
        if first > log.first:
            freed[log.name] = first
    return freed


def keep_from(log: Log, slowest_cursor: int | None, retention: Retention, now_us: int) -> int:
    """The first epoch that has to stay, for `Change.freed`; log.first or less if none can go."""
    read = log.head if slowest_cursor is None else min(slowest_cursor, log.head)
    upto = min(read, log.newest(retention.epochs) - 1)
    return log.first_arrived_after(now_us - retention.age_us, upto)
