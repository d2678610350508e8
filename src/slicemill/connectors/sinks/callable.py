"""Python function as a sink: `receive(epoch, table)`, at least once, in order.

It is called for every epoch with rows. An epoch's number is a permanent id of its rows. So a function that
remembers the last finished number can skip repeated epochs after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

Receive = Callable[[int, pa.Table], object]


@dataclass(slots=True)
class CallableSink:
    receive: Receive
    per_epoch: bool = True

    def resume(self, owner: str, stored: int) -> int:
        del owner
        return stored

    def deliver(self, first: int, last: int, table: pa.Table) -> None:
        del first
        self.receive(last, table)

    def close(self) -> None:
        """Do nothing, as nothing is open between deliveries."""
