"""Subscriber of the latency benchmark: reads rows as soon as they are visible, and records the time.

    python -m slicemill_lab.bench.live.subscriber SAMPLES.npz home HOME QUERY…
    python -m slicemill_lab.bench.live.subscriber SAMPLES.npz socket
    python -m slicemill_lab.bench.live.subscriber SAMPLES.npz folder FOLDER

The subscriber follows a home of slicemill, or reads lines `query,stamp` from connections to the port that it
prints, or from files that appear in a folder. It prints the name of a query at its first row. At the end of
its standard input, it writes its samples and ends.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from slicemill_lab.bench.live.samples import Recorder

_EVERY_S = 0.001

# Rows released by time have the time when they were due, other rows the stamp of their latest tuple.
STAMPS = ("sent", "due")


def stamps_of(rows: pa.Table) -> list[int]:
    """Return the stamps of result rows; empty without a stamp column.

    >>> stamps_of(pa.table({"sent": [5, 6], "price": [1, 2]})), stamps_of(pa.table({"price": [1]}))
    ([5, 6], [])
    """
    for name in STAMPS:
        if name in rows.column_names:
            found: list[int] = rows.column(name).cast(pa.int64()).to_pylist()
            return found
    return []


def watch_home(home: Path, queries: Sequence[str], recorder: Recorder, ended: threading.Event) -> None:
    from slicemill.connectors.follow import EVERY_S, Follower

    follower = Follower(home, queries)
    while not ended.wait(EVERY_S):
        for seen in follower.poll():
            recorder.add(seen.query, stamps_of(seen.rows), seen.rows.num_rows)


def watch_socket(server: socket.socket, recorder: Recorder, ended: threading.Event) -> None:
    def receive(client: socket.socket) -> None:
        rest = b""
        with client, contextlib.suppress(ConnectionError):
            while data := client.recv(1 << 16):
                *lines, rest = (rest + data).split(b"\n")
                add_lines(lines, recorder)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=receive, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    ended.wait()
    server.close()


def watch_folder(folder: Path, recorder: Recorder, ended: threading.Event) -> None:
    """Read new files. A file in progress has a name that starts with a dot."""
    known: set[Path] = set()
    while not ended.wait(_EVERY_S):
        for path in folder.rglob("[!.]*"):
            if path.is_file() and path not in known:
                known.add(path)
                add_lines(path.read_bytes().split(b"\n"), recorder)


def add_lines(lines: Sequence[bytes], recorder: Recorder) -> None:
    found: dict[str, list[int]] = {}
    for line in lines:
        query, comma, stamp = line.decode().partition(",")
        if comma:
            found.setdefault(query, []).append(int(stamp))
    for query, stamps in found.items():
        recorder.add(query, stamps, len(stamps))


def main(out: Path, how: str, arguments: Sequence[str]) -> None:
    recorder = Recorder(lambda: time.time_ns() // 1_000, lambda query: print(query, flush=True))
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    if how == "socket":
        server = socket.create_server(("127.0.0.1", 0))
        print(server.getsockname()[1], flush=True)
        watch_socket(server, recorder, ended)
    else:
        folder = Path(arguments[0])
        watches: dict[str, Callable[[], None]] = {
            "home": lambda: watch_home(folder, arguments[1:], recorder, ended),
            "folder": lambda: watch_folder(folder, recorder, ended),
        }
        watches[how]()
    recorder.samples().save(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
