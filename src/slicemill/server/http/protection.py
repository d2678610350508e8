"""Protection of the HTTP server: tokens, host names, and limits of size, time and rate."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import h11
from fastapi import Depends, FastAPI, HTTPException, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from slicemill.errors import SlicemillError
from slicemill.server.auth import Access, Principal
from slicemill.server.connections import ClientLimits
from slicemill.server.logs import note_event
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession

LARGEST_BODY = 2 << 20
_BODY_S = 30.0
_TOO_LARGE, _TOO_MUCH = 413, f"the request is too large; send at most {LARGEST_BODY:,} bytes"
_CLOSE = {"Connection": "close"}  # header of a response after which the rest of the request body is not read
# Limits per client address: size of a burst of requests, and requests per second that refill it
_BURST, _RATE = 1_000, 500.0
_ADDRESSES = 10_000
_HERE = frozenset(("127.0.0.1", "localhost", "[::1]", "testserver"))


class Unauthenticated(SlicemillError):
    """Error: the request has no token, or its token is unknown."""


def current_principal(request: Request) -> Principal | None:
    """Return the principal of a request, or None if it lacks a required valid token.

    None if the request has no valid token although a token is required.
    """
    access: Access = request.app.state.access
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return access.principal(token.strip() if scheme.lower() == "bearer" else None)


CurrentPrincipal = Annotated[Principal | None, Depends(current_principal)]


def current_session(request: Request, principal: CurrentPrincipal) -> UserSession:
    """Return the session of the principal of a request."""
    if principal is None:
        raise Unauthenticated("this server requires a token; send the header Authorization: Bearer TOKEN")
    return UserSession(request.app.state.service, principal, "http")


CurrentSession = Annotated[UserSession, Depends(current_session)]


def protect(app: FastAPI, service: MillService, access: Access) -> None:
    """Add request limits and the host name check to an application, and attach service and tokens."""
    app.state.service = service
    app.state.access = access
    app.add_middleware(RequestLimits, access=access)


@dataclass(slots=True)
class RateLimit:
    """Token bucket of requests for each client address."""

    burst: float = _BURST
    rate: float = _RATE
    clock: Callable[[], float] = time.monotonic
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def takes(self, address: str) -> bool:
        """Take one request from the bucket. Return False if the bucket is empty."""
        now = self.clock()
        left, at = self._left.pop(address, (self.burst, now))
        left = min(self.burst, left + (now - at) * self.rate)
        self._left[address] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > _ADDRESSES:
            self._left.popitem(last=False)
        return left >= 1


class RequestLimits:
    """Middleware that rejects requests beyond the limits, or for foreign host names.

    A web page of any site can make a browser send requests to this machine under a host name of that site
    (DNS rebinding). So without tokens, only requests for host names of this machine are served.
    """

    def __init__(self, app: ASGIApp, access: Access, limit: RateLimit | None = None) -> None:
        self._app = app
        self._access = access
        self._limit = limit or RateLimit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        problem = self._problem(scope)
        if problem is not None:
            status, message = problem
            body = {"errors": [{"message": message, "hint": ""}]}
            headers = _CLOSE if status == _TOO_LARGE else None
            await JSONResponse(body, status, headers)(scope, receive, send)
            return
        await self._app(scope, _limit_body(receive), send)

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        headers = dict(scope["headers"])
        client = scope.get("client")
        if not self._limit.takes(client[0] if client else ""):
            return 429, "too many requests from this address; wait a second"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            return _TOO_LARGE, _TOO_MUCH
        host = headers.get(b"host", b"").decode("latin-1")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if not self._access.requires_token and name.lower() not in _HERE:
            return (
                421,
                "without tokens, this server accepts only requests for localhost; create a token first",
            )
        return None


def _limit_body(receive: Receive) -> Receive:
    """Limit the size and the arrival time of a request body.

    The returned function raises HTTPException beyond the limits.
    """
    taken = 0
    ends = time.monotonic() + _BODY_S
    whole = False

    async def limited() -> Message:
        nonlocal taken, whole
        if whole:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, ends - time.monotonic()))
        except TimeoutError:
            raise HTTPException(
                408, f"the request body did not arrive within {_BODY_S:.0f} s", _CLOSE
            ) from None
        taken += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if taken > LARGEST_BODY:
            raise HTTPException(_TOO_LARGE, _TOO_MUCH, _CLOSE)
        return message

    return limited


# HTTP connection with timeouts
#
# A stuck or idle client is disconnected. uvicorn stops producing output when 64 KiB wait for a client, so the
# memory for a slow client is bounded. However, uvicorn waits without a timeout. A disconnected client can
# reconnect with the id of its last event.


_CONNECTION = "slicemill_connection"


class BoundedProtocol(H11Protocol):
    """HTTP connection that closes if the client reads or sends nothing for too long."""

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
        """Run the application. Cancel the response if the client has disconnected."""

        async def send_or_yield(message: Message) -> None:
            if self.transport.is_closing():
                # `connection_lost` runs now. After that, uvicorn discards messages, and Starlette ends the
                # response. Without this step, a response that never waits would compute and write all its
                # parts.
                await asyncio.sleep(0)
            await send(message)

        await self._application(scope, receive, send_or_yield)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._stuck, self._asking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a request.

        A body that continues after its response is read up to a limit.
        """
        answered = self.cycle is not None and self.cycle.response_complete
        if answered and self.conn.their_state is h11.SEND_BODY:
            self._passed_over += len(data)
            if self._passed_over > LARGEST_BODY:
                self._cut_off("its request continues after the response", log=False)
                return
        else:
            self._passed_over = 0
        super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_read()

    def resume_writing(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
        super().resume_writing()

    def _expect_read(self) -> None:
        """Disconnect the client if it reads nothing while writing is paused."""
        waiting = self.transport.get_write_buffer_size()

        def check() -> None:
            if self.transport.get_write_buffer_size() < waiting:
                self._expect_read()
            else:
                self._cut_off("it has read none of its pending output")

        self._stuck = self.loop.call_later(self.limits.stuck_s, check)

    def _expect_request(self) -> None:
        """Disconnect the client unless a complete request arrives in time.

        uvicorn itself limits keep-alive only.
        """
        before = self.cycle

        def check() -> None:
            waits = self.cycle is None or (self.cycle is before and self.cycle.response_complete)
            if waits and not self.transport.get_write_buffer_size():
                self._cut_off("it sent no complete request in time", log=False)
            else:
                self._expect_request()

        self._asking = self.loop.call_later(self.limits.request_s, check)

    def _cut_off(self, why: str, log: bool = True) -> None:
        if log:
            note_event(
                "client cut off",
                f"a client was disconnected: {why}",
                way="http",
                address=str(self.client),
            )
        self.transport.abort()


class ChunkedConnection:
    """Connection with an open chunked response, for direct writes.

    Direct writes make it cheap to send one row to many clients. The request passes the middleware layers of
    the application once per client, and rows do not pass them at all.
    """

    def __init__(self, protocol: BoundedProtocol) -> None:
        self._protocol = protocol

    @staticmethod
    def frame_content(content: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(content), content)

    def takes(self) -> bool:
        return not self._protocol.flow.write_paused and not self._protocol.transport.is_closing()

    def write(self, framed: bytes) -> None:
        self._protocol.transport.write(framed)


def connection_of(scope: Scope) -> ChunkedConnection | None:
    """Return the connection of a chunked response, or None if direct writes are not possible."""
    protocol = scope.get("state", {}).get(_CONNECTION)
    if not isinstance(protocol, BoundedProtocol) or scope.get("http_version") != "1.1":
        return None
    return ChunkedConnection(protocol)


def protocol_class(limits: ClientLimits) -> type[asyncio.Protocol]:
    """Return a protocol class with these limits, which uvicorn instantiates for each connection."""
    found: Any = type("BoundedProtocolWithLimits", (BoundedProtocol,), {"limits": limits})
    return cast(type[asyncio.Protocol], found)
