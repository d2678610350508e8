"""Retention: find consumed epochs whose retention time is over.

A consumer's cursor in a log is the number of the last epoch that it has read (-1: none). It corresponds to
the dummy buffers of the theses: many queues share one stored copy. Epochs are freed in order, so one number
per log is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slicemill.storage.log import Log


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention of epochs after all consumers have read them."""

    age_us: int = 0  # since arrival
    epochs: int = 0  # number of newest epochs to keep


def slowest(consumers: Iterable[Mapping[str, int]], log: str) -> int | None:
    """Return the smallest cursor of a log. None without a reader."""
    return min((cursors[log] for cursors in consumers if log in cursors), default=None)


def epochs_to_free(
    logs: Iterable[Log], consumers: Sequence[Mapping[str, int]], kept_us: Mapping[str, int], now_us: int
) -> dict[str, int]:
    """Return by log the first epoch to keep, for `Change.freed`.

    Logs without an epoch to free are left out.
    """
    freed = {}
    for log in logs:
        retention = Retention(age_us=kept_us.get(log.name, 0))
        first = keep_from(log, slowest(consumers, log.name), retention, now_us)
        if first > log.first:
            freed[log.name] = first
    return freed


def keep_from(log: Log, slowest_cursor: int | None, retention: Retention, now_us: int) -> int:
    """Return the first epoch to keep, for `Change.freed`.

    It is at most log.first if no epoch can be freed.
    """
    read = log.head if slowest_cursor is None else min(slowest_cursor, log.head)
    upto = min(read, log.newest(retention.epochs) - 1)
    return log.first_arrived_after(now_us - retention.age_us, upto)
