"""How long clients may keep a server waiting."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """`stuck_s`: for how long a client may take nothing of what waits for it; `request_s`: until it asks."""

    stuck_s: float = 30.0
    request_s: float = 60.0


class SlowClient(Exception):
    """A client took nothing for too long."""


async def drained(writer: asyncio.StreamWriter, limits: ClientLimits) -> None:
    """Wait until a client has taken most of what was sent; SlowClient if it takes nothing."""
    while True:
        waiting = writer.transport.get_write_buffer_size()
        try:
            async with asyncio.timeout(limits.stuck_s):
                await writer.drain()
            return
        except TimeoutError:
            if writer.transport.get_write_buffer_size() >= waiting:
                raise SlowClient from None
