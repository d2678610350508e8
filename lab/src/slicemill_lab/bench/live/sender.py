"""Sender of the latency benchmark: a server per stream that sends tuples to all connected clients.

    python -m slicemill_lab.bench.live.sender LOG.npy

The sender prints its ports as one line of JSON. Input lines set the rate, in tuples per second over all
streams. At the end of its input the sender stops, and writes the send time and price of each bid, from which
the expected number of filter results follows. Every tuple is stamped when it is sent. So a sender that cannot
keep up sends fewer tuples, without adding latency.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from slicemill.connectors.generators.nexmark import STREAMS
from slicemill_lab.bench.live.stamped import Event, events

_TICK_S = 0.001


def now_us() -> int:
    return time.time_ns() // 1_000


class Broadcast:
    """Listening socket that sends the same lines to all clients, from the time when they connect."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.clients: list[socket.socket] = []
        self.arrived = threading.Event()
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def send(self, lines: bytes) -> None:
        for client in list(self.clients):
            try:
                client.sendall(lines)
            except OSError:
                self.clients.remove(client)
                client.close()

    def close(self) -> None:
        self._server.close()
        for client in self.clients:
            client.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.clients.append(client)
                self.arrived.set()


class Pace:
    """Rate limiter: evenly spaced tuples, and at most those of a tenth of a second at once."""

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate, self._since, self._sent = rate, now_s, 0

    def due(self, now_s: float) -> int:
        """Return the number of tuples due since the last call.

        >>> pace = Pace(1000, 5.0)
        >>> pace.due(5.0105), pace.due(5.0105), pace.due(9.0), pace.due(9.0015)
        (10, 0, 100, 1)
        """
        due = int((now_s - self._since) * self._rate) - self._sent
        most = max(1, int(self._rate / 10))
        if due > most:
            self._since, self._sent = now_s, 0
            return most
        self._sent += due
        return due


def main(log: Path) -> None:
    outputs = {stream: Broadcast() for stream in STREAMS}
    print(json.dumps({stream: output.port for stream, output in outputs.items()}), flush=True)
    rates: list[float] = [0.0]
    ended = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            rates.append(float(line))
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    sent: list[tuple[int, int]] = []
    source = events()
    rate, pace = 0.0, Pace(0.0, 0.0)
    while not ended.wait(_TICK_S):
        if rates[-1] != rate:
            rate, pace = rates[-1], Pace(rates[-1], time.monotonic())
        _send(source, pace.due(time.monotonic()), outputs, sent)
    for output in outputs.values():
        output.close()
    np.save(log, np.array(sent, np.int64).reshape(-1, 2))


def _send(
    source: Iterator[Event], count: int, outputs: dict[str, Broadcast], sent: list[tuple[int, int]]
) -> None:
    lines: dict[str, list[bytes]] = {}
    for _ in range(count):
        event, at = next(source), now_us()
        lines.setdefault(event.stream, []).append(event.line(at))
        if event.stream == "bid":
            sent.append((at, event.price))
    for stream, found in lines.items():
        outputs[stream].send(b"".join(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
