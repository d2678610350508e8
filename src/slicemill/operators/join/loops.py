"""Kernels with fixed signatures.

    @loop(types.void(hashes_in, places_out))
    def group(hashes, order): ...

Vectors of slices are memory-mapped and read-only, other vectors are writable. With inferred types, a loop
would be compiled for every combination of both.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from slicemill.machine_code.kernel import KernelFunction
from slicemill.machine_code.types import Signature

_GIVEN: Signature = ("the types that are given",)


class Loop(KernelFunction):
    """Kernel that is compiled only for its declared signatures."""

    def __init__(self, function: FunctionType, signatures: tuple[Any, ...]) -> None:
        super().__init__(function, {}, None)
        self._signatures = signatures

    def signature(self, arguments: tuple[Any, ...]) -> Signature:
        del arguments
        return _GIVEN

    def compile(self, signature: Signature = _GIVEN) -> None:
        """Compile now, or load the code that another process compiled."""
        from slicemill.machine_code.numba_kernels import compiled_for

        if not self.is_compiled:
            for given in self._signatures:
                compiled_for(self, given.args)
            self.dispatcher.disable_compile()
            self._code[signature] = self.dispatcher

    def is_stored(self, signature: Signature) -> bool:
        from slicemill.machine_code.numba_kernels import is_stored

        del signature
        return all(is_stored(self, given.args) for given in self._signatures)

    @property
    def is_compiled(self) -> bool:
        return _GIVEN in self._code


def loop(*signatures: Any) -> Callable[[Any], Loop]:
    """Return a decorator that compiles a function for these signatures."""
    return lambda function: Loop(function, signatures)
