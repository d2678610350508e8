"""How long a supervisor waits before it tries again, and what it makes of Spark's errors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from slicemill.runtime.workers.pool import is_running, job_failure_cause, pause_s

if TYPE_CHECKING:
    from pyspark import SparkContext


def test_pauses_grow_up_to_half_a_minute() -> None:
    pauses = [pause_s(failures) for failures in range(200)]
    assert pauses[:4] == [0.0, 0.0, 0.25, 0.5]
    assert pauses == sorted(pauses) and pauses[-1] == 30.0


def test_the_error_of_a_task_is_one_line(context: SparkContext) -> None:
    def fail(_: object) -> object:
        raise ValueError("no such unit")

    with pytest.raises(Exception) as raised:
        context.parallelize([0], 1).map(fail).collect()
    assert job_failure_cause(raised.value) == "ValueError: no such unit"


def test_the_end_of_a_process_is_one_line(context: SparkContext) -> None:
    with pytest.raises(Exception) as raised:
        context.parallelize([0], 1).map(lambda _: os._exit(1)).collect()
    assert "Python worker exited unexpectedly" in job_failure_cause(raised.value)
    assert "\n" not in job_failure_cause(raised.value)


def test_errors_without_a_word_are_named() -> None:
    assert job_failure_cause(KeyError()) == "KeyError"


def test_a_context_that_works_is_running(context: SparkContext) -> None:
    assert is_running(context)
