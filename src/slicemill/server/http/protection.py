"""Protection of the HTTP server: tokens, host names, and limits of size, time and rate."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slicemill.errors import SlicemillError
from slicemill.server.access import Access, Principal
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession

LARGEST_BODY = 2 << 20
_BODY_S = 30.0
_TOO_LARGE, _TOO_MUCH = 413, f"a request has at most {LARGEST_BODY:,} bytes"
_CLOSE = {"Connection": "close"}  # the rest of a body is not read
# Limits per client address: the burst, and the requests per second that refill it.
_BURST, _RATE = 1_000, 500.0
_ADDRESSES = 10_000
_HERE = frozenset(("127.0.0.1", "localhost", "[::1]", "testserver"))


class Unauthenticated(SlicemillError):
    """The request has no token, or an unknown one."""


def current_principal(request: Request) -> Principal | None:
    """Return the principal of a request, or None if it has no valid token although one is required."""
    access: Access = request.app.state.access
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return access.principal(token.strip() if scheme.lower() == "bearer" else None)


CurrentPrincipal = Annotated[Principal | None, Depends(current_principal)]


def current_session(request: Request, principal: CurrentPrincipal) -> UserSession:
    """Return the session of the principal of a request."""
    if principal is None:
        raise Unauthenticated("send a token of this server: Authorization: Bearer …")
    return UserSession(request.app.state.service, principal, "http")


CurrentSession = Annotated[UserSession, Depends(current_session)]


def protect(app: FastAPI, service: MillService, access: Access) -> None:
    """Add limits and the check of host names to an application, and attach its service and tokens."""
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
    """Middleware that rejects requests that are too large, too slow or too frequent, or for foreign hosts.

    A web page of any site can make a browser send requests to this machine, under a host name of that site
    (DNS rebinding). So without tokens only requests for host names of this machine are served.
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
        await self._app(scope, _limited(receive), send)

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        headers = dict(scope["headers"])
        client = scope.get("client")
        if not self._limit.takes(client[0] if client else ""):
            return 429, "too many requests; wait a second"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            return _TOO_LARGE, _TOO_MUCH
        host = headers.get(b"host", b"").decode("latin-1")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if not self._access.asks and name.lower() not in _HERE:
            return 421, "without tokens this server answers under the names of its own machine only"
        return None


def _limited(receive: Receive) -> Receive:
    """Limit the size and the arrival time of a request body. Raises HTTPException beyond the limits."""
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
            raise HTTPException(408, f"a request arrives within {_BODY_S:.0f} s", _CLOSE) from None
        taken += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if taken > LARGEST_BODY:
            raise HTTPException(_TOO_LARGE, _TOO_MUCH, _CLOSE)
        return message

    return limited
