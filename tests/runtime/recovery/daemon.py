"""The worker daemon of a driver that is to be killed: its workers obey orders."""

from __future__ import annotations

from pyspark.daemon import manager

import slicemill.runtime.daemon  # noqa: F401
from runtime.recovery.kill import WORKER, watch

if __name__ == "__main__":
    watch(WORKER)
    manager()
