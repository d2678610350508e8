"""Limits of time for clients."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """After these seconds a connection is closed.

    `stuck_s`: the client has taken nothing of what waits for it. `request_s`: no whole HTTP request has
    arrived. `start_s`: a client of PostgreSQL has not shown its token.
    """

    stuck_s: float = 30.0
    request_s: float = 60.0
    start_s: float = 30.0


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
