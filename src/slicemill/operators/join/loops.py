"""Compiled loops with given types, compiled when they are first called, not when they are imported.

    @loop(types.void(hashes_in, places_out))
    def group(hashes, order): ...

Types are given because vectors of slices are mapped files, which cannot be written, and others can: without
them a loop would be compiled for every mixture of both. What Numba compiles at once for given types, about
five seconds for all loops of a join, here waits for somebody who joins; it is then read from Numba's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from numba import njit


class Loop:
    """A function that becomes machine code at its first call."""

    def __init__(self, function: Callable[..., Any], signatures: tuple[Any, ...]) -> None:
        self.__doc__ = function.__doc__
        self._signatures = signatures
        self._lock = Lock()
        self._dispatcher = njit(cache=True)(function)
        self._run: Callable[..., Any] = self._first_call

    def compile(self) -> None:
        """Compile now, or read what another process has compiled."""
        with self._lock:
            if self.is_compiled:
                return
            for signature in self._signatures:
                self._dispatcher.compile(signature)
            self._dispatcher.disable_compile()
            self._run = self._dispatcher

    @property
    def is_compiled(self) -> bool:
        return self._run is self._dispatcher

    def __call__(self, *arguments: Any) -> Any:
        return self._run(*arguments)

    def _first_call(self, *arguments: Any) -> Any:
        self.compile()
        return self._dispatcher(*arguments)


def loop(*signatures: Any) -> Callable[[Callable[..., Any]], Loop]:
    """Make a function a loop, for vectors of these types."""
    return lambda function: Loop(function, signatures)
