"""The worker daemon of a driver that is to be killed: its workers obey orders."""

from __future__ import annotations

from recovery.kill import WORKER, watch
from slicemill.engine.daemon import run

if __name__ == "__main__":
    watch(WORKER)
    run()
