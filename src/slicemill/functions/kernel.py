"""Kernels: functions over columns, made for one call's types and constants.

A *fallback row* is a row that a kernel could not compute. The *row function*, which is plain Python, then
computes the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, NamedTuple, TypeAlias

from slicemill.functions.vectors import Data, Vector, and_masks, mask_or_none, or_masks
from slicemill.kernels.arrays import Bools
from slicemill.types import Type

VARIES: Final = object()  # placeholder of an argument that is not a constant


class Fallback(Exception):
    """Raised by a kernel that cannot compute these columns.

    The row function then evaluates all rows. For example, some string kernels support only ASCII.
    """


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Call that a kernel is made for. Its arguments are already converted."""

    function: str
    types: tuple[Type, ...]
    result: Type
    values: tuple[object, ...]

    def constant(self, index: int, default: object = VARIES) -> Any:
        """Return the value of a constant argument.

        Return VARIES for an argument that is not constant, and `default` for an omitted argument.
        """
        return self.values[index] if index < len(self.values) else default


class KernelResult(NamedTuple):
    """Kernel result, with masks of NULL rows and of rows that it could not compute."""

    data: Data
    null: Bools | None = None
    fallback: Bools | None = None

    def except_for(self, more: Bools) -> KernelResult:
        """Return the result with more rows marked as not computed by the kernel."""
        return self._replace(fallback=or_masks(self.fallback, more))


# A strict kernel receives and returns column data without NULL masks, because `apply` handles NULLs.
# A free kernel receives and returns a `Vector`, which is column data with masks.
Strict: TypeAlias = Callable[..., Any]
Free: TypeAlias = Callable[..., Vector]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Implementation of a call over whole columns.

    With `patches`, the row function evaluates the fallback rows directly after the kernel, once per distinct
    arguments. This is faster if there are many fallback rows.
    """

    function: Strict | Free
    strict: bool = True
    patches: bool = False


KernelMaker: TypeAlias = Callable[[KernelCall], "Kernel | Strict | None"]


def kernel(function: Strict) -> KernelMaker:
    """Return a KernelMaker that uses this function for all types and constants."""
    return lambda _call: Kernel(function)


def free_kernel(function: Free) -> KernelMaker:
    """Like `kernel`, for a function that handles NULLs and fallbacks itself."""
    return lambda _call: Kernel(function, strict=False)


def apply(kernel: Kernel, result: Type, vectors: list[Vector]) -> tuple[Vector, Bools | None]:
    """Run a kernel; return its result, and a mask of rows that it could not compute.

    The result marks the fallback rows of the arguments.
    """
    if not kernel.strict:
        return kernel.function(*vectors), None
    valid = reduce(and_masks, (vector.valid for vector in vectors))
    fallback = reduce(or_masks, (vector.fallback for vector in vectors))
    out = kernel.function(*(vector.data for vector in vectors))
    if not isinstance(out, KernelResult):
        return Vector(result, out, valid, fallback), None
    own = mask_or_none(out.fallback)
    if own is not None and valid is not None:
        own = mask_or_none(own & valid)
    if out.null is not None:
        valid = and_masks(valid, ~out.null)
    return Vector(result, out.data, valid, fallback), own
