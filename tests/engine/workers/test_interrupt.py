"""Whose handler answers Ctrl-C: PySpark's is taken out while workers stay, any other one is left alone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slicemill.runtime.workers.pool import Interrupts


@pytest.fixture(autouse=True)
def handler_of_the_tests() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def handler(module: str) -> Callable[..., Any]:
    def handle(*_: object) -> None:
        raise AssertionError("it would have cancelled all jobs")

    handle.__module__ = module
    return handle


def test_pysparks_handler_is_out_until_it_is_given_back() -> None:
    cancels = handler("pyspark.core.context")
    signal.signal(signal.SIGINT, cancels)
    interrupts = Interrupts()
    interrupts.take()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    interrupts.give_back()
    assert signal.getsignal(signal.SIGINT) is cancels


def test_two_pools_give_it_back_when_both_have_ended() -> None:
    cancels = handler("pyspark.core.context")
    signal.signal(signal.SIGINT, cancels)
    first, second = Interrupts(), Interrupts()
    first.take()
    second.take()
    second.give_back()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    first.give_back()
    assert signal.getsignal(signal.SIGINT) is cancels


@pytest.mark.parametrize("own", [handler("somebody.else"), signal.SIG_IGN, signal.default_int_handler])
def test_another_handler_stays(own: Any) -> None:
    signal.signal(signal.SIGINT, own)
    interrupts = Interrupts()
    interrupts.take()
    assert signal.getsignal(signal.SIGINT) is own
    interrupts.give_back()
    assert signal.getsignal(signal.SIGINT) is own


def test_a_handler_that_was_set_meanwhile_stays() -> None:
    signal.signal(signal.SIGINT, handler("pyspark.core.context"))
    interrupts = Interrupts()
    interrupts.take()
    own = handler("somebody.else")
    signal.signal(signal.SIGINT, own)
    interrupts.give_back()
    assert signal.getsignal(signal.SIGINT) is own


def test_another_thread_changes_nothing() -> None:
    cancels = handler("pyspark.core.context")
    signal.signal(signal.SIGINT, cancels)
    interrupts = Interrupts()
    thread = threading.Thread(target=interrupts.take)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is cancels
