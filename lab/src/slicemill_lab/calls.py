"""Cost measured in function calls, which is the same on every machine and in every run, unlike time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def calls_made(work: Callable[[], object]) -> int:
    """Return the number of function calls, including built-in functions.

    >>> calls_made(lambda: len([abs(-1), abs(-2)])) - calls_made(lambda: len([]))
    2
    """
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:  # noqa: ARG001
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
