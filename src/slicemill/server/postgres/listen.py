"""Listener for PostgreSQL clients, including cancel requests."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import ssl
import struct

from slicemill.server.auth import Access
from slicemill.server.connections import ClientLimits, SlowClient
from slicemill.server.live_results import LiveResults
from slicemill.server.logs import note_event
from slicemill.server.postgres.session import CancelKey, PostgresSession
from slicemill.server.postgres.wire import ProtocolError
from slicemill.server.service import MillService

_LOGGER = logging.getLogger("slicemill")


class PostgresServer:
    """PostgreSQL sessions of a server, in its event loop."""

    def __init__(
        self,
        service: MillService,
        live: LiveResults,
        access: Access,
        tls: ssl.SSLContext | None = None,
        limits: ClientLimits = ClientLimits(),  # noqa: B008
    ) -> None:
        self._service = service
        self._live = live
        self._access = access
        self._tls = tls
        self._limits = limits
        self._sessions: dict[int, PostgresSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    async def listen(self, listening: socket.socket) -> asyncio.Server:
        return await asyncio.start_server(self._serve_client, sock=listening)

    def end(self) -> None:
        """Disconnect all clients."""
        for task in self._tasks:
            task.cancel()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._tasks.add(task)
        number = next(self._numbers)
        session = PostgresSession(
            self._service, self._live, self._access, CancelKey(number), (reader, writer), self._limits
        )
        try:
            async with asyncio.timeout(self._limits.start_s):
                cancel = await session.start(self._tls)
            if cancel is not None:
                self._cancel(cancel[1])
                return
            self._sessions[number] = session
            await session.serve()
        except SlowClient:
            address = writer.get_extra_info("peername")
            note_event(
                "client cut off",
                "a client was disconnected: it has read none of its pending output",
                way="postgres",
                address=str(address),
            )
            writer.transport.abort()
        except (
            *(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, TimeoutError),
            *(ProtocolError, ssl.SSLError),
        ):
            pass  # the client has disconnected or was rejected
        except Exception:
            _LOGGER.exception("a connection of a PostgreSQL client ended because of an internal error")
        finally:
            session.interrupted.set()
            self._sessions.pop(number, None)
            self._tasks.discard(task)
            with contextlib.suppress(Exception):
                writer.close()

    def _cancel(self, content: bytes) -> None:
        if len(content) != 8:
            return
        process, secret = struct.unpack("!ii", content)
        session = self._sessions.get(process)
        if session is not None and session.has_secret(secret):
            session.interrupted.set()
