"""A webhook on this machine: a real HTTP server that remembers what it was sent."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True)
class Webhook:
    """`answer` says with which status a message is answered; what got a 2xx is in `taken`."""

    url: str = ""
    answer: Callable[[dict[str, Any]], int] = lambda _: 204
    asked: list[dict[str, Any]] = field(default_factory=list)
    taken: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    retry_after: str | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)

    def received(self, count: int, timeout_s: float = 20) -> list[dict[str, Any]]:
        """What was taken, once there are so many."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.taken) >= count, timeout_s), self.taken
            return list(self.taken)


@contextmanager
def listening_webhook(tls: ssl.SSLContext | None = None) -> Iterator[Webhook]:
    """A webhook that listens on a free port; with a context, it speaks TLS."""
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = hook.answer(body)
            with hook.changed:
                hook.asked.append(body)
                hook.headers.append(dict(self.headers))
                if 200 <= status < 300:
                    hook.taken.append(body)
                hook.changed.notify_all()
            self.send_response(status)
            if hook.retry_after is not None:
                self.send_header("Retry-After", hook.retry_after)
            if status == 302:
                self.send_header("Location", hook.url)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hook.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}/hook?key=1"
    try:
        yield hook
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
