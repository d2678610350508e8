"""What a log may free: epochs that every consumer has passed and whose time to be kept is over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slicemill.storage.log import Log


def epochs_to_free(
    logs: Mapping[str, Log], cursors: Iterable[Mapping[str, int]], kept_us: Mapping[str, int], now_us: int
) -> dict[str, int]:
    """By log, the first epoch that stays, for those that have something to free.

    `cursors` say what each consumer has read, `kept_us` for how long after their arrival epochs of a log stay
    although all have read them. Epochs go in order, so one number says it all.
    """
    slowest: dict[str, int] = {}
    for consumer in cursors:
        for log, cursor in consumer.items():
            slowest[log] = min(cursor, slowest.get(log, cursor))
    freed: dict[str, int] = {}
    for name, log in logs.items():
        read = slowest.get(name, log.head)
        first = log.first
        before_us = now_us - kept_us.get(name, 0)
        last = log.last_arrived(upto=read, before_us=before_us)
        if last is not None and last >= first:
            freed[name] = last + 1
    return freed
