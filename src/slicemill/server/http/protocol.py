"""HTTP connection with timeouts: stuck and idle clients are disconnected.

uvicorn stops producing output when 64 KiB wait for a client, so the memory for a slow client is bounded.
However, uvicorn waits without a timeout. A client that was disconnected here can reconnect with its last id.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import h11
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from slicemill.server.client_limits import ClientLimits
from slicemill.server.http.protection import LARGEST_BODY
from slicemill.server.logs import note_event

_CONNECTION = "slicemill_connection"


class BoundedProtocol(H11Protocol):
    """HTTP connection with timeouts. `limits` sets how long the client may be stuck."""

    limits = ClientLimits()
    _stuck: asyncio.TimerHandle | None = None
    _asking: asyncio.TimerHandle | None = None
    _passed_over = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._application, self.app = self.app, self._run_app
        self.app_state = {**self.app_state, _CONNECTION: self}
        self._expect_request()

    async def _run_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application. A response to a client that has disconnected is cancelled."""

        async def send_or_yield(message: Message) -> None:
            if self.transport.is_closing():
                # `connection_lost` runs now. uvicorn then discards messages, and Starlette ends the response.
                # Without this step, all parts of a response that never waits would be computed and written.
                await asyncio.sleep(0)
            await send(message)

        await self._application(scope, receive, send_or_yield)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._stuck, self._asking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a request. A body that continues after its response is read up to a limit."""
        answered = self.cycle is not None and self.cycle.response_complete
        if answered and self.conn.their_state is h11.SEND_BODY:
            self._passed_over += len(data)
            if self._passed_over > LARGEST_BODY:
                self._cut_off("its request goes on after the response", told=False)
                return
        else:
            self._passed_over = 0
        super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_taken()

    def resume_writing(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
        super().resume_writing()

    def _expect_taken(self) -> None:
        """Cut the client off if it reads nothing while writing is paused."""
        waiting = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < waiting:
                self._expect_taken()
            else:
                self._cut_off("it takes nothing")

        self._stuck = self.loop.call_later(self.limits.stuck_s, look)

    def _expect_request(self) -> None:
        """Cut the client off unless a complete request arrives in time. uvicorn itself limits keep-alive
        only."""
        before = self.cycle

        def look() -> None:
            waits = self.cycle is None or (self.cycle is before and self.cycle.response_complete)
            if waits and not self.transport.get_write_buffer_size():
                self._cut_off("no request came from it in time", told=False)
            else:
                self._expect_request()

        self._asking = self.loop.call_later(self.limits.request_s, look)

    def _cut_off(self, why: str, told: bool = True) -> None:
        if told:
            note_event("client cut off", f"a client was cut off: {why}", way="http", address=str(self.client))
        self.transport.abort()


class ChunkedConnection:
    """Connection with an open chunked response, to which chunks can be written directly.

    A direct write makes it cheap to send one row to many clients. The middleware layers of the application
    are passed once per client, and not once per row.
    """

    def __init__(self, protocol: BoundedProtocol) -> None:
        self._protocol = protocol

    @staticmethod
    def framed(content: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(content), content)

    def takes(self) -> bool:
        return not self._protocol.flow.write_paused and not self._protocol.transport.is_closing()

    def write(self, framed: bytes) -> None:
        self._protocol.transport.write(framed)


def chunked(scope: Scope) -> ChunkedConnection | None:
    """Return the connection of a request with a chunked response, or None if it cannot be accessed."""
    protocol = scope.get("state", {}).get(_CONNECTION)
    if not isinstance(protocol, BoundedProtocol) or scope.get("http_version") != "1.1":
        return None
    return ChunkedConnection(protocol)


def bounded(limits: ClientLimits) -> type[asyncio.Protocol]:
    """Return a protocol class with these limits, which uvicorn instantiates for each connection."""
    found: Any = type("BoundedProtocolWithLimits", (BoundedProtocol,), {"limits": limits})
    return cast(type[asyncio.Protocol], found)
