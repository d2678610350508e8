"""Two attempts of one worker at once: the newest wins, and what an old one says is not heard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import pytest

from engine.workers.pools import Driver
from slicemill.runtime.workers.channel import ANSWER, HELLO, READY, Hello, connect, encode
from slicemill.runtime.workers.events import WorkerJoined, WorkerLeft
from slicemill.runtime.workers.pool import WorkerPool


@contextmanager
def attempt(driver: Driver, incarnation: int, worker: int = 0) -> Iterator[Connection[bytes, bytes]]:
    """Another attempt of a worker, as a frozen executor or a lost network leaves it."""
    pool = driver.pool
    assert isinstance(pool, WorkerPool) and pool.address is not None
    with connect(pool.address, pool._key) as peer:
        # No process of that number: it must not be taken for one of ours, and ended.
        peer.send_bytes(encode(HELLO, Hello(worker, incarnation, "other", "elsewhere", 1 << 30)))
        yield peer


def is_hung_up(driver: Driver, peer: Connection[bytes, bytes]) -> bool:
    driver.until(lambda: peer.poll(0))
    try:
        peer.recv_bytes()
    except (EOFError, ConnectionError):
        return True
    return False


@pytest.mark.parametrize("older", [0, 1])
def test_an_older_attempt_and_the_same_one_again_are_turned_away(resident: Driver, older: int) -> None:
    here = resident.there()
    with attempt(resident, here.incarnation - older) as peer:
        peer.send_bytes(encode(READY, None))
        assert is_hung_up(resident, peer)
    assert resident.ask(0, "who")[1] == here.incarnation
    assert not resident.lefts()


def test_an_older_attempt_is_turned_away_when_the_newer_one_is_gone(resident: Driver) -> None:
    here = resident.there()
    os.kill(here.pid, 9)
    resident.until(lambda: bool(resident.lefts()))
    with attempt(resident, here.incarnation) as peer:
        assert is_hung_up(resident, peer)


def test_a_worker_of_a_number_that_is_not_ours_is_turned_away(resident: Driver) -> None:
    for worker in (-1, 2):
        with attempt(resident, 1 << 20, worker) as peer:
            assert is_hung_up(resident, peer)


def test_a_newer_attempt_takes_the_place_of_an_older_one_and_its_message_is_lost(resident: Driver) -> None:
    here = resident.there()
    resident.pool.send(0, ("hang",))
    with attempt(resident, here.incarnation + 1) as newer:
        resident.until(lambda: bool(resident.lefts()))
        assert resident.lefts() == [WorkerLeft(0, here.incarnation, "a newer attempt has taken its place")]
        newer.send_bytes(encode(READY, None))
        assert resident.there() == WorkerJoined(0, here.incarnation + 1, "elsewhere", 1 << 30)
        before = len(resident.events)
        resident.pool.send(0, "to the newer one")
        assert newer.recv_bytes()[:1] == b"M"
        newer.send_bytes(encode(ANSWER, "by the newer one"))
        assert resident.answer(0, before) == "by the newer one"
    # Spark starts another attempt in the place of the one that was ended.
    resident.until(lambda: resident.joined.get(0, here).incarnation > here.incarnation + 1)
    assert resident.ask(0, "echo", 1) == 1


def test_half_an_answer_does_not_hold_the_dispatcher(resident: Driver) -> None:
    here = resident.there()
    with attempt(resident, here.incarnation + 1) as newer:
        newer.send_bytes(encode(READY, None))
        resident.until(lambda: resident.joined.get(0, here).incarnation == here.incarnation + 1)
        resident.pool.send(0, "anything")
        answer = bytes(encode(ANSWER, "whole"))
        frame = len(answer).to_bytes(4, "big") + answer
        os.write(newer.fileno(), frame[:9])
        assert resident.ask(1, "echo", 1) == 1
        before = len(resident.events)
        os.write(newer.fileno(), frame[9:])
        assert resident.answer(0, before) == "whole"


def test_answers_that_nobody_asked_for_and_unknown_frames_are_not_heard(resident: Driver) -> None:
    here = resident.there()
    with attempt(resident, here.incarnation + 1) as newer:
        for frame in (encode(READY, None), encode(ANSWER, "unasked"), encode(b"?", 1)):
            newer.send_bytes(frame)
        resident.until(lambda: resident.joined.get(0, here).incarnation == here.incarnation + 1)
        assert resident.ask(1, "echo", 1) == 1
        before = len(resident.events)
        resident.pool.send(0, "asked")
        newer.send_bytes(encode(ANSWER, "asked"))
        assert resident.answer(0, before) == "asked"
