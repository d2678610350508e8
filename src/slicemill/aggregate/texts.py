"""listagg and string_agg: the texts of a window in the order of arrival, with a separator between them."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from slicemill.aggregate.inwindow import Args


class Joined:
    """The separator is the second argument, the same for all tuples; without one there is none (Spark)."""

    __slots__ = ("_separator", "_texts")

    def __init__(self) -> None:
        self._separator = ""
        self._texts: deque[str] = deque()

    def add(self, args: Args) -> None:
        if len(args) > 1:
            self._separator = cast(str, args[1])
        if args[0] is not None:
            self._texts.append(cast(str, args[0]))

    def remove(self, args: Args) -> None:
        if args[0] is not None:
            self._texts.popleft()

    def value(self) -> object:
        return self._separator.join(self._texts) if self._texts else None

    def state(self) -> object:
        return self._separator, self._texts

    def restore(self, state: Any) -> None:
        self._separator, self._texts = state
