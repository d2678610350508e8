"""Summary of a Spark error in one line."""

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
# Class names before the message at the end of a line: "… java.io.IOException: ".
_LEADING = re.compile(r"^.*\b[a-z]\w*\.(?:\w+\.)*\w+(?:Exception|Error): ")


def cause(problem: BaseException) -> str:
    return last_words(str(problem)) or type(problem).__name__


def last_words(text: str) -> str:
    """Return the error at the end of the last Python traceback.

    Without a traceback, return the first line. The driver's traceback contains that of the task, so the last
    one is the origin.

    >>> last_words("calling o7\\n: … Traceback (most recent call last):\\n  File …\\nKeyError: 7\\n\\tat …")
    'KeyError: 7'
    >>> last_words("calling o7\\n: Lost task: org.apache.spark.SparkException: crashed\\n\\tat …")
    'crashed'
    """
    lines = [line for line in text.rpartition(_TRACE)[2].split("\n") if line and not line[0].isspace()]
    if not lines:
        return ""
    # The first line is Py4J's call; the message of Java follows after a colon.
    said = lines[1].removeprefix(": ") if lines[1:] and lines[1].startswith(": ") else lines[0]
    return _LEADING.sub("", said)


def in_few_words(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate a callback of Spark: raise only the cause of errors.

    Spark matches patterns against the error, and an error of a few pages overflows its stack. A query that
    is stopped in the middle of a batch would then print some thousand lines on the terminal.
    """

    @functools.wraps(call)
    def short(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return call(*arguments, **named)
        except (Py4JError, PySparkException) as problem:
            raise SlicemillError(cause(problem)) from None

    return short
