"""What a worker says last: nothing when its reader has gone, why when it failed. And its garbage."""

from __future__ import annotations

import gc
import subprocess
import sys

from slicemill.engine.daemon import Garbage

_WORKER = """
import os, socket
from slicemill.engine.daemon import without_last_words

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


def test_after_every_few_tasks_all_garbage_is_collected_and_else_only_what_is_young() -> None:
    looked_at: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            looked_at.append(about["generation"])

    garbage = Garbage(tasks_between_all=3)
    gc.disable()  # by itself
    gc.callbacks.append(note)
    try:
        for _ in range(6):
            garbage.collect()
    finally:
        gc.callbacks.remove(note)
        gc.enable()
    assert looked_at == [1, 1, 2, 1, 1, 2]
