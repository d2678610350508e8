"""The cause of an error of Spark, in one line."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from slicemill.errors import SlicemillError

P = ParamSpec("P")
T = TypeVar("T")

_TRACE = "Traceback (most recent call last):\n"
# What leads up to a line's last message, if it ends with the name of a class: "… java.io.IOException: ".
_LEADING = re.compile(r"^.*\b[a-z]\w*\.(?:\w+\.)*\w+(?:Exception|Error): ")


def cause(problem: BaseException) -> str:
    return last_words(str(problem)) or type(problem).__name__


def last_words(text: str) -> str:
    """The error with which the last Python trace ends; without a trace, the first line.

    The trace of a task is told inside that of the driver, so the last one is where it began.

    >>> last_words("calling o7\\n: … Traceback (most recent call last):\\n  File …\\nKeyError: 7\\n\\tat …")
    'KeyError: 7'
    >>> last_words("calling o7\\n: Lost task: org.apache.spark.SparkException: crashed\\n\\tat …")
    'crashed'
    """
    lines = [line for line in text.rpartition(_TRACE)[2].split("\n") if line and not line[0].isspace()]
    if not lines:
        return ""
    # Py4J says which call it was; what Java said follows after a colon.
    said = lines[1].removeprefix(": ") if lines[1:] and lines[1].startswith(": ") else lines[0]
    return _LEADING.sub("", said)


def in_few_words(call: Callable[P, T]) -> Callable[P, T]:
    """A function for Spark to call: it raises a failure of Spark with its cause only.

    Spark looks for patterns in what such a function fails with, and a few pages overflow its stack: a query
    that was stopped in the middle of a batch then prints some thousand lines on the terminal.
    """

    @functools.wraps(call)
    def short(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return call(*arguments, **named)
        except (Py4JError, PySparkException) as problem:
            raise SlicemillError(cause(problem)) from None

    return short
