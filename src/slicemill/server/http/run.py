"""Running the HTTP application until somebody ends it."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from slicemill.errors import SlicemillError

_STARTED_S = 30.0
_ENDED_S = 10.0


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Where the server listens; port 0 takes any that is free."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: str | None = None
    key: str | None = None


def listening_socket(address: HttpAddress) -> socket.socket:
    """The socket of an address. A port that is taken is told here, before anything is started."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((address.host, address.port))
        found.listen(512)
    except OSError as problem:
        found.close()
        if problem.errno == errno.EADDRINUSE:
            raise SlicemillError(
                f"port {address.port} of {address.host} is taken; name another one with --port"
            ) from None
        raise SlicemillError(
            f"cannot listen at {address.host}:{address.port}: {problem.strerror or problem}"
        ) from None
    return found


@contextmanager
def serving(app: FastAPI, listening: socket.socket, address: HttpAddress) -> Iterator[str]:
    """Serve an application in a thread of its own; gives its URL."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
        timeout_graceful_shutdown=2,
        lifespan="on",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), name="http", daemon=True)
    thread.start()
    waiting = threading.Event()
    for _ in range(int(_STARTED_S / 0.02)):
        if server.started or not thread.is_alive():
            break
        waiting.wait(0.02)
    try:
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        yield f"http{'s' if address.certificate else ''}://{shown}:{port}"
    finally:
        server.should_exit = True
        thread.join(_ENDED_S)
