"""Network side of a server: one thread whose event loop serves HTTP and PostgreSQL clients."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from slicemill.errors import SlicemillError
from slicemill.server.auth import Access, TokenFileError
from slicemill.server.connections import ClientLimits, ConnectionLimits, LimitedSocket, OpenConnections
from slicemill.server.http.app import create_app
from slicemill.server.http.protection import protocol_class
from slicemill.server.live_results import LiveResults
from slicemill.server.pages.stored_slices import SliceWatch
from slicemill.server.postgres.listen import PostgresServer
from slicemill.server.postgres.wire import too_many_clients
from slicemill.server.sampling import Sampler
from slicemill.server.service import MillService

_STARTED_S = 30.0
_ENDED_S = 10.0
_HTTP_REFUSED = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 10\r\nConnection: close\r\n\r\n"
)
_LOGGER = logging.getLogger("slicemill")


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files of a TLS certificate and its private key."""

    file: str
    key: str


class ServerSockets:
    """Listening sockets of a server. Raises an error if a port is in use, before anything starts."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        postgres_port: int | None = None,
        certificate: Certificate | None = None,
        connections: ConnectionLimits | None = None,
    ) -> None:
        _tls(certificate)  # this reports unreadable files before anything starts
        self.certificate = certificate
        opened = OpenConnections(connections or ConnectionLimits.of_process())
        self.http = _bind_socket(host, port, "--port", opened)
        self.postgres: LimitedSocket | None = None
        if postgres_port is not None:
            self.postgres = _bind_socket(host, postgres_port, "--postgres-port", opened)
        if certificate is None:  # a TLS client could not read a refusal in clear text
            self.http.refused = _HTTP_REFUSED
            if self.postgres is not None:
                self.postgres.refused = too_many_clients()

    @property
    def url(self) -> str:
        return f"http{'s' if self.certificate else ''}://{_format_address(self.http)}"

    @property
    def postgres_url(self) -> str | None:
        return None if self.postgres is None else f"postgresql://{_format_address(self.postgres)}"


def check_address(host: str, access: Access) -> None:
    """Require tokens if the server listens on a public address. Raises an error if no token exists."""
    try:
        here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = host == "localhost"
    if here:
        return
    access.close()
    try:
        tokens = access.entries()
    except TokenFileError:
        return  # the queries run, all requests are rejected, and /health reports the reason
    if not tokens:
        raise SlicemillError(
            f"{host} can be reached from other machines, but there are no tokens; first create one: "
            "slicemill token add NAME --home DIR"
        )


def _bind_socket(host: str, port: int, option: str, connections: OpenConnections) -> LimitedSocket:
    found = LimitedSocket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    found.connections = connections
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(512)
        found.setblocking(False)
    except OSError as problem:
        found.close()
        if problem.errno == errno.EADDRINUSE:
            raise SlicemillError(
                f"port {port} of {host} is in use; choose another port with {option}"
            ) from None
        raise SlicemillError(f"cannot listen at {host}:{port}: {problem.strerror or problem}") from None
    return found


def _format_address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def serving(
    service: MillService,
    listening: ServerSockets,
    access: Access | None = None,
    limits: ClientLimits = ClientLimits(),  # noqa: B008
) -> Iterator[str]:
    """Run a server in its own thread. Yields the URL."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    service.adhoc_queries.start()
    thread = threading.Thread(
        target=lambda: asyncio.run(_serve(service, listening, access or Access(), limits, started)),
        name="network",
        daemon=True,
    )
    thread.start()
    loop, ended = started.result(_STARTED_S)
    try:
        yield listening.url
    finally:
        with contextlib.suppress(RuntimeError):  # the loop has already ended
            loop.call_soon_threadsafe(ended.set)
        thread.join(_ENDED_S)


async def _serve(
    service: MillService,
    listening: ServerSockets,
    access: Access,
    limits: ClientLimits,
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]],
) -> None:
    try:
        ended = asyncio.Event()
        live = LiveResults(service)
        live.start(asyncio.get_running_loop())
        sampler = Sampler(service.mill, history=service.mill.home.folder / "history.arrow")
        sampler.start()
        cuts = SliceWatch(service.mill)
        cuts.start()
        certificate = listening.certificate
        config = uvicorn.Config(
            create_app(service, live, sampler, cuts, access),
            http=protocol_class(limits),
            ws="none",
            log_config=None,
            access_log=False,
            ssl_certfile=certificate.file if certificate else None,
            ssl_keyfile=certificate.key if certificate else None,
            timeout_graceful_shutdown=2,
            headers=[("X-Content-Type-Options", "nosniff")],
            lifespan="off",
        )
        http = _HttpServer(config)
        http_task = asyncio.create_task(http.serve([listening.http]))
        postgres = PostgresServer(service, live, access, _tls(certificate), limits)
        postgres_server = await postgres.listen(listening.postgres) if listening.postgres else None
        while not http.started and not http_task.done():
            await asyncio.sleep(0.01)
        started.set_result((asyncio.get_running_loop(), ended))
    except BaseException as problem:
        started.set_exception(problem)
        raise
    await ended.wait()
    live.stop()
    sampler.stop()
    cuts.stop()
    if postgres_server is not None:
        postgres_server.close()
        postgres.end()
    http.should_exit = True
    await http_task


class _HttpServer(uvicorn.Server):
    """HTTP server that does not handle signals, because `server.serve` handles them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _tls(certificate: Certificate | None) -> ssl.SSLContext | None:
    if certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate.file, certificate.key)
    except OSError as problem:  # OSError includes ssl.SSLError
        for file in (certificate.file, certificate.key):
            try:
                Path(file).read_bytes()
            except OSError as unread:
                raise SlicemillError(f"cannot read {file}: {unread.strerror}") from None
        names = f"{certificate.file} and {certificate.key}"
        raise SlicemillError(f"{names} are not a certificate and its key in PEM format: {problem}") from None
    return context
