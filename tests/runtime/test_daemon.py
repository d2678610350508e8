"""A worker's last words: none when its reader has gone, all of them when it failed by itself."""

from __future__ import annotations

import subprocess
import sys

_WORKER = """
import os, socket
from slicemill.runtime.daemon import without_last_words

def worker(sock, authenticated):
    out = os.fdopen(os.dup(sock.fileno()), "wb", 65536)
    out.write(b"x")
    {then}

near, far = socket.socketpair()
far.close()
without_last_words(worker)(near, True)
"""


def ended(then: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", _WORKER.format(then=then)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_a_worker_whose_reader_is_gone_ends_without_a_word() -> None:
    assert ended("out.flush()") == (1, "")


def test_a_worker_that_fails_says_why() -> None:
    status, said = ended("raise ValueError('bad')")
    assert status == 1 and "ValueError: bad" in said
