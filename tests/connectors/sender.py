"""Sender at a real socket, and waits for its effects."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable

DEADLINE_S = 60.0


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        threading.Event().wait(0.02)


class Sender:
    """Server on 127.0.0.1 that executes its commands in order, as soon as a client is connected."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._orders: queue.Queue[bytes | None] = queue.Queue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def send(self, data: bytes) -> None:
        self._orders.put(data)

    def hang_up(self) -> None:
        self._orders.put(None)

    def close(self) -> None:
        self._closing.set()
        self._orders.put(None)
        # Wakes the thread in accept, which close alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closing.is_set():
                connection, _ = self._listener.accept()
                with connection:
                    if _has_gone(connection):
                        continue  # The client disconnected while it waited, so sent lines would be lost.
                    while (data := self._orders.get()) is not None:
                        connection.sendall(data)


def _has_gone(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
