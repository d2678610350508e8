"""Kernels with given types.

    @loop(types.void(hashes_in, places_out))
    def group(hashes, order): ...

Types are given because vectors of slices are mapped files, which cannot be written, and others can: without
them a loop would be compiled for every mixture of both.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from slicemill.machine_code.kernel import KernelFunction
from slicemill.machine_code.types import Signature

_GIVEN: Signature = ("the types that are given",)


class Loop(KernelFunction):
    """A kernel that is compiled for its types and no others."""

    def __init__(self, function: FunctionType, signatures: tuple[Any, ...]) -> None:
        super().__init__(function, {}, None)
        self._signatures = signatures

    def signature(self, arguments: tuple[Any, ...]) -> Signature:
        del arguments
        return _GIVEN

    def compile(self, signature: Signature = _GIVEN) -> None:
        """Compile now, or read what another process has compiled."""
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
    """Make a function a loop, for vectors of these types."""
    return lambda function: Loop(function, signatures)
