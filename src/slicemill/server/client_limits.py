"""Timeouts of client connections."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Seconds after which a connection is closed.

    `stuck_s`: the client has read nothing of its pending output. `request_s`: no complete HTTP request has
    arrived. `start_s`: a PostgreSQL client has not authenticated.
    """

    stuck_s: float = 30.0
    request_s: float = 60.0
    start_s: float = 30.0


class SlowClient(Exception):
    """The client has read nothing for too long."""


async def drained(writer: asyncio.StreamWriter, limits: ClientLimits) -> None:
    """Wait until the write buffer has drained. Raise SlowClient if the client reads nothing."""
    while True:
        waiting = writer.transport.get_write_buffer_size()
        try:
            async with asyncio.timeout(limits.stuck_s):
                await writer.drain()
            return
        except TimeoutError:
            if writer.transport.get_write_buffer_size() >= waiting:
                raise SlowClient from None
