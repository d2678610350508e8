"""A frame of the driver ends a busy worker on another machine, even one that is stuck in machine code."""

from __future__ import annotations

import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from itertools import repeat
from multiprocessing.connection import Connection

from slicemill.runtime.workers.channel import END
from slicemill.runtime.workers.worker import ended_by_frames


def _ended(work: Callable[[Connection[bytes, bytes], Connection[bytes, bytes]], None]) -> int:
    """Return the exit status of a child that begins work, after this process has sent END."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    ready, begun = os.pipe()
    child = os.fork()
    if not child:
        near.close()
        try:
            work(Connection(far.detach()), Connection(begun, readable=False))
        finally:
            os._exit(0)
    far.close()
    os.read(ready, 1)
    with Connection(near.detach()) as driver:
        driver.send_bytes(END)
        _, status = os.waitpid(child, 0)
    os.close(ready)
    os.close(begun)
    return status


def test_a_frame_ends_a_worker_that_keeps_the_interpreter_lock() -> None:
    def stuck(driver: Connection[bytes, bytes], begun: Connection[bytes, bytes]) -> None:
        with ended_by_frames(driver):
            begun.send_bytes(b"1")
            deque(repeat(0, 10**12), maxlen=0)

    assert os.WTERMSIG(_ended(stuck)) == signal.SIGPROF


def test_a_frame_that_has_arrived_before_ends_the_worker() -> None:
    def late(driver: Connection[bytes, bytes], begun: Connection[bytes, bytes]) -> None:
        begun.send_bytes(b"1")
        driver.poll(None)
        with ended_by_frames(driver):
            pass

    assert os.WTERMSIG(_ended(late)) == signal.SIGPROF


def test_an_idle_worker_reads_the_frame() -> None:
    def idle(driver: Connection[bytes, bytes], begun: Connection[bytes, bytes]) -> None:
        with ended_by_frames(driver):
            pass
        begun.send_bytes(b"1")
        os._exit(7 if driver.recv_bytes() == END else 8)

    assert os.WEXITSTATUS(_ended(idle)) == 7
