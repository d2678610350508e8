"""Limits on open connections: in total, per client address, and by free file descriptors.

All ports of a server share the counts. A connection counts from `accept` on, before TLS and authentication.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from slicemill.server.logs import note_event

_SPARE = 256
_NOTED_EVERY_S = 10.0
_REFUSED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of open connections: at most `total`, and `per_address` from one client address.

    Descriptors from `first_spare` on are reserved for the rest of the process.
    """

    total: int
    per_address: int
    first_spare: int

    @staticmethod
    def within(most: int, descriptors: int) -> ConnectionLimits:
        """Return the connection limits for a number of file descriptors.

        One address gets at most half of all connections.

        >>> ConnectionLimits.within(2_000, 1_024)
        ConnectionLimits(total=768, per_address=384, first_spare=768)
        """
        first_spare = descriptors - min(_SPARE, descriptors // 4)
        total = max(1, min(most, first_spare))
        return ConnectionLimits(total, max(1, total // 2), first_spare)

    @staticmethod
    def of_process(most: int = 2_000) -> ConnectionLimits:
        """Return the connection limits that follow from the number of files this process may open (ulimit
        -n).
        """
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return ConnectionLimits.within(most, soft if soft != resource.RLIM_INFINITY else 1 << 30)


class OpenConnections:
    """Counter of open connections by client address. Used in the network thread only."""

    def __init__(self, limits: ConnectionLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._open: Counter[str] = Counter()
        self._total = 0
        self._noted_s = -_NOTED_EVERY_S

    def refusal(self, descriptor: int, host: str) -> str | None:
        """Return the reason to refuse one more connection, or None.

        The operating system assigns the lowest free descriptor. So a high descriptor means that few are
        left.
        """
        if descriptor >= self.limits.first_spare:
            return "file descriptors are running out"
        if self._total >= self.limits.total:
            return f"there are {self.limits.total:,} connections"
        if self._open[_address(host)] >= self.limits.per_address:
            return f"there are {self.limits.per_address:,} connections of this address"
        return None

    def opened(self, host: str) -> Callable[[], None]:
        """Count a connection. Return the function to call when the connection has ended."""
        address = _address(host)
        self._total += 1
        self._open[address] += 1

        def ended() -> None:
            self._total -= 1
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

        return ended

    def note(self, why: str, host: str) -> None:
        """Log a refused connection, at most one in ten seconds."""
        now = self._clock()
        if now - self._noted_s >= _NOTED_EVERY_S:
            self._noted_s = now
            note_event(
                "connection refused", f"a connection was refused: {why}", logging.WARNING, address=host
            )


def _address(host: str) -> str:
    """Return the address under which connections are counted; for IPv6, its 64-bit network.

    >>> _address("192.0.2.7"), _address("2001:db8::7"), _address("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::', '192.0.2.7')
    """
    found = ipaddress.ip_address(host.partition("%")[0])
    if found.version == 4:
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False).network_address)


class ClientSocket(socket.socket):
    """Accepted connection, counted until it is closed."""

    ended: Callable[[], None] | None = None

    def close(self) -> None:
        ended, self.ended = self.ended, None
        if ended is not None:
            ended()
        super().close()


class LimitedSocket(socket.socket):
    """Listening socket that enforces the connection limits.

    A client beyond the limits receives `refused` and is disconnected.
    """

    connections: OpenConnections
    refused = b""

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(_REFUSED_AT_ONCE):
            plain, address = super().accept()
            why = self.connections.refusal(plain.fileno(), address[0])
            if why is None:
                client = ClientSocket(self.family, self.type, self.proto, plain.detach())
                client.ended = self.connections.opened(address[0])
                return client, address
            self.connections.note(why, address[0])
            with plain, suppress(OSError):
                plain.setblocking(False)
                plain.send(self.refused)
        raise BlockingIOError  # the event loop calls accept again for the remaining connections


# Timeouts of client connections


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Seconds after which a connection is closed.

    `stuck_s`: the client reads none of its pending output. `request_s`: no complete HTTP request arrives.
    `start_s`: a PostgreSQL client does not authenticate.
    """

    stuck_s: float = 30.0
    request_s: float = 60.0
    start_s: float = 30.0


class SlowClient(Exception):
    """Raised when a client has read nothing for too long."""


async def drain_writer(writer: asyncio.StreamWriter, limits: ClientLimits) -> None:
    """Wait until the write buffer has drained. Raises SlowClient if the client reads nothing."""
    while True:
        waiting = writer.transport.get_write_buffer_size()
        try:
            async with asyncio.timeout(limits.stuck_s):
                await writer.drain()
            return
        except TimeoutError:
            if writer.transport.get_write_buffer_size() >= waiting:
                raise SlowClient from None
