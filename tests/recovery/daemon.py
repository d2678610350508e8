"""The worker daemon of a driver that is to be killed: its workers obey orders, and their files are small."""

from __future__ import annotations

import functools

from recovery.kill import WORKER, watch
from recovery.warm import warm_up
from slicemill.connectors.files import reader
from slicemill.runtime import worker as task
from slicemill.runtime.workers.daemon import run
from slicemill.storage.segments import SegmentWriters

# Small figures, so that a short run starts new segments, which lets old ones go, and writes the ledger.
_SEGMENT_BYTES = 4_000
_NAMES_IN_OFFSET = 3

if __name__ == "__main__":
    warm_up()
    task.SegmentWriters = functools.partial(SegmentWriters, roll_bytes=_SEGMENT_BYTES)  # type: ignore[misc,assignment]
    reader._NAMES_IN_OFFSET = _NAMES_IN_OFFSET
    watch(WORKER)
    run()
