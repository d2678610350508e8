"""Garbage collection: free what every consumer has read, and remove what failed writers left.

Both may stop at any step and be called again. `collect` goes by committed cursors only: a unit that crashes
runs again from them, and finds its input still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slicemill.storage.cursors import Retention, keep_from, slowest
from slicemill.storage.files import GRACE_US
from slicemill.storage.log import StreamLog
from slicemill.storage.state import StateStore, roll_forward

_KEEP_NOTHING = Retention()


def committed_cursors(stores: Iterable[StateStore]) -> list[Mapping[str, int]]:
    """The units' cursors as of their last version."""
    return [store.load(store.head).cursors for store in stores]


def collect(
    logs: Mapping[str, StreamLog],
    consumers: Iterable[Mapping[str, int]],
    now_us: int,
    retention: Mapping[str, Retention] | None = None,
) -> dict[str, int]:
    """Free in each log the epochs that all consumers have passed and whose retention is over.

    Every consumer must be there, with a cursor for each log that it will read, one that has not run yet too
    (a unit's version 0 has them). Returns the bytes freed, by log.
    """
    everyone = list(consumers)
    freed = {}
    for name, log in logs.items():
        rule = (retention or {}).get(name, _KEEP_NOTHING)
        number = keep_from(log.first, log.head, log.epoch, slowest(everyone, name), rule, now_us)
        freed[name] = log.truncate_before(number)
    return freed


def sweep(
    logs: Mapping[str, StreamLog], stores: Iterable[StateStore], grace_us: int = GRACE_US
) -> dict[str, list[str]]:
    """Remove orphans older than `grace_us` from logs and units, by folder; all units that write to the logs.

    Result chunks that a unit has committed, but a crash kept from their log, are appended first.
    """
    units = list(stores)
    for store in units:
        roll_forward(store, logs)
    owners: list[StreamLog | StateStore] = [*logs.values(), *units]
    return {str(owner.folder): owner.sweep(grace_us) for owner in owners}
