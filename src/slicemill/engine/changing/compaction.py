"""Compaction: the changes of a changelog that nobody reads any more become the table that they came to.

    log of `popular`   … 3   5   8 │ 9   12          first epoch that somebody may still ask for: 9
                       folded here │ kept            by cursors and `keep_s`, as for any log

The table is written to a segment of its own, beside the dispatcher; then one journal record puts it in the
place of the changes (`Change.based`). A process that dies before the record leaves a segment that nobody
names, and the changes; one that dies after it leaves segments that nobody names, and the table.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slicemill.columns.changes import INSERT, table_of_now, with_ops
from slicemill.esl.types.schema import Schema
from slicemill.storage.changes import Appended
from slicemill.storage.files import unique_name
from slicemill.storage.log import Epoch, Log
from slicemill.storage.order import time_range
from slicemill.storage.segments import SegmentWriter

# Fewer changes are not worth a file.
_LEAST_ROWS = 10_000

_LOGGER = logging.getLogger("slicemill")


@dataclass(frozen=True, slots=True)
class FoldedLog:
    """The table that the changes of a log up to an epoch come to, as it was written."""

    log: Log
    upto: int
    base: Appended


class Compactor:
    """Folds one log at a time, when its changes since the last time are as many as the rows of its base.

    So each change is read and written again about twice at most, and a log has no more changes that nobody
    needs than rows. `least_rows` is how many changes are worth it.
    """

    def __init__(self, durable: bool, least_rows: int = _LEAST_ROWS) -> None:
        self.least_rows = least_rows
        self._durable = durable
        self._thread: threading.Thread | None = None
        self._folded: FoldedLog | None = None

    def wait(self) -> None:
        """Until what is being written is there."""
        if self._thread is not None:
            self._thread.join()

    def look(
        self, logs: Mapping[str, Log], changing: Mapping[str, Schema], freed: Mapping[str, int]
    ) -> dict[str, tuple[int, Appended]]:
        """What is folded, for `Change.based`; what is worth it is folded from now on.

        `freed` has the first epoch that has to stay, of logs that could be freed now.
        """
        if self._thread is not None and self._thread.is_alive():
            return {}
        done, self._folded, self._thread = self._folded, None, None
        based = {}
        # Meanwhile the log may be gone, or somebody may have begun to read it.
        if (
            done is not None
            and logs.get(done.log.name) is done.log
            and freed.get(done.log.name, 0) > done.upto
        ):
            based[done.log.name] = (done.upto, done.base)
        for name, first in freed.items():
            if name in changing and name not in based and self._worth_it(logs[name], first):
                self._begin(logs[name], changing[name], logs[name].epochs(upto=first - 1))
                break
        return based

    def _worth_it(self, log: Log, first: int) -> bool:
        epochs = log.epochs(upto=first - 1)
        base = epochs[0].rows if epochs and epochs[0].number == log.base else 0
        return sum(epoch.rows for epoch in epochs) - base >= max(self.least_rows, base)

    def _begin(self, log: Log, schema: Schema, epochs: Sequence[Epoch]) -> None:
        def fold() -> None:
            try:
                self._folded = folded(log, schema, epochs, self._durable)
            except Exception:  # the changes are all there: another try will do
                _LOGGER.exception("the changes of %s could not be folded; they stay", log.name)

        self._thread = threading.Thread(target=fold, name=f"slicemill-fold-{log.name}", daemon=True)
        self._thread.start()


def folded(log: Log, schema: Schema, epochs: Sequence[Epoch], durable: bool = False) -> FoldedLog:
    """Write the table that epochs of a log, the first ones, come to."""
    changes = pa.concat_tables([log.read(epoch) for epoch in epochs])
    rows = table_of_now(changes, schema)
    table = with_ops(rows, np.full(rows.num_rows, INSERT)).cast(changes.schema)
    extents = []
    if table.num_rows:
        writer = SegmentWriter(log.folder, f"base.{unique_name()}")
        extents.append(writer.append(table, compress=True))
        if durable:
            writer.sync()
        writer.release()
    # It is as old as the newest of what it stands for.
    arrival_us = max(epoch.arrival_us for epoch in epochs)
    return FoldedLog(log, epochs[-1].number, Appended(extents, *time_range(table), arrival_us))
