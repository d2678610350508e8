"""Messages and answers, the same whether workers stay or tasks come and go."""

from __future__ import annotations

import threading
import time

import pytest

from engine.workers.pools import Driver
from slicemill.runtime.workers.events import Failure, WorkerAnswer


def test_a_message_is_answered_by_the_worker_it_was_sent_to(either: Driver) -> None:
    assert [either.ask(worker, "who")[0] for worker in (0, 1, 1, 0)] == [0, 1, 1, 0]


def test_messages_to_several_workers_are_answered_together(either: Driver) -> None:
    before = len(either.events)
    for worker in (0, 1):
        either.pool.send(worker, ("echo", worker))
    assert [either.answer(worker, before) for worker in (0, 1)] == [0, 1]


def test_an_answer_says_when_its_message_was_sent(either: Driver) -> None:
    before = time.time_ns() // 1000
    either.ask(0, "echo", None)
    answer = either.events[-1]
    assert isinstance(answer, WorkerAnswer) and before <= answer.sent_us <= time.time_ns() // 1000


def test_a_worker_has_one_message_at_a_time(either: Driver) -> None:
    before = len(either.events)
    either.pool.send(0, ("echo", 1))
    with pytest.raises(RuntimeError, match="worker 0 has not answered yet"):
        either.pool.send(0, ("echo", 2))
    assert either.answer(0, before) == 1


def test_messages_of_four_megabytes_go_both_ways(either: Driver) -> None:
    large = bytes(range(256)) * (4 << 12)
    assert either.ask(0, "echo", large) == large
    assert either.ask(0, "size", large) == len(large)
    assert either.ask(0, "bytes", 4 << 20) == b"x" * (4 << 20)
    assert either.ask(0, "echo", b"small") == b"small"


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (("raise", "no such thing"), "ValueError: no such thing"),
        (("leave", 3), "SystemExit: 3"),
        (("unpicklable",), "ValueError: this stays here"),
        (("nothing",), "KeyError: 'nothing'"),
    ],
)
def test_an_exception_comes_back_and_the_worker_lives_on(
    either: Driver, message: tuple[object, ...], error: str
) -> None:
    lost = len(either.lefts())
    failed = either.ask(0, *message)
    assert isinstance(failed, Failure)
    assert failed.error == error
    assert "Traceback" in failed.traceback
    assert either.ask(0, "echo", 1) == 1
    assert len(either.lefts()) == lost


def test_a_message_that_cannot_be_pickled_is_the_senders_error(either: Driver) -> None:
    with pytest.raises(Exception, match="pickle"):
        either.pool.send(0, lambda: None)
    assert either.ask(0, "echo", 1) == 1


def test_an_answer_that_cannot_be_read_is_a_failure(either: Driver) -> None:
    failed = either.ask(0, "unreadable")
    assert isinstance(failed, Failure) and "invalid literal" in failed.error


class Unreadable:
    def __reduce__(self) -> tuple[object, ...]:
        return (int, ("not a number",))


def test_a_message_that_cannot_be_read_is_a_failure(either: Driver) -> None:
    failed = either.ask(0, "echo", Unreadable())
    assert isinstance(failed, Failure) and "invalid literal" in failed.error
    assert either.ask(0, "echo", 1) == 1


def test_notices_of_threads_arrive(either: Driver) -> None:
    either.ask(0, "notify", {"source": 1})

    def noticed() -> bool:
        # Of tasks that come and go the next answer brings them.
        if {"source": 1} not in either.notices():
            either.ask(0, "echo", None)
        return {"source": 1} in either.notices()

    either.until(noticed)


def test_waiting_ends_when_it_is_woken(either: Driver) -> None:
    waker = threading.Timer(0.05, either.pool.wake)
    waker.start()
    assert either.step(None) == []
    waker.join()


def test_waking_is_not_lost_when_nobody_waits_yet(either: Driver) -> None:
    for _ in range(100_000):
        either.pool.wake()
    assert either.step(None) == []
    assert either.step(0) == []


def test_waiting_ends_with_its_time(either: Driver) -> None:
    assert either.step(0.01) == []
