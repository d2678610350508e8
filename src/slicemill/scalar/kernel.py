"""What a kernel is: a function of whole columns, made for the types and constants of one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, NamedTuple, TypeAlias

from slicemill.esl.types.schema import Type
from slicemill.scalar.vectors import Data, Mask, Vector, both, either, some

VARIES: Final = object()  # in place of the value of an argument that is no constant


class Fallback(Exception):
    """The columns at hand have no fast form, such as strings that are not ASCII: the row form runs."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call as the maker of its kernel sees it, its arguments converted to the types the function takes."""

    function: str
    types: tuple[Type, ...]
    result: Type
    values: tuple[object, ...]

    def constant(self, index: int, default: object = VARIES) -> Any:
        """The value of a constant argument, VARIES for another, `default` for one that is left out."""
        return self.values[index] if index < len(self.values) else default


class Out(NamedTuple):
    """A result with more to say than its data: rows that become NULL, and rows left to the row form."""

    data: Data
    null: Mask | None = None
    fallback: Mask | None = None

    def except_for(self, more: Mask) -> Out:
        """The same, with more rows left to the row form."""
        return self._replace(fallback=either(self.fallback, more))


# Strict: columns of values in, values out; NULLs are seen to. Free: vectors in, a vector out.
Strict: TypeAlias = Callable[..., Any]
Free: TypeAlias = Callable[..., Vector]


@dataclass(frozen=True, slots=True)
class Kernel:
    """`patches`: fallbacks are common enough to be run where they arise, by distinct arguments."""

    function: Strict | Free
    strict: bool = True
    patches: bool = False


KernelMaker: TypeAlias = Callable[[KernelCall], "Kernel | Strict | None"]


def kernel(function: Strict) -> KernelMaker:
    """One kernel for all types and constants."""
    return lambda _call: Kernel(function)


def free_kernel(function: Free) -> KernelMaker:
    """The same, of a function that sees NULLs and fallbacks itself."""
    return lambda _call: Kernel(function, strict=False)


def apply(kernel: Kernel, result: Type, vectors: list[Vector]) -> tuple[Vector, Mask | None]:
    """The kernel's vector, and the rows that the kernel itself, not an argument, leaves to the row form."""
    if not kernel.strict:
        return kernel.function(*vectors), None
    valid = reduce(both, (vector.valid for vector in vectors))
    fallback = reduce(either, (vector.fallback for vector in vectors))
    out = kernel.function(*(vector.data for vector in vectors))
    if not isinstance(out, Out):
        return Vector(result, out, valid, fallback), None
    own = some(out.fallback)
    if own is not None and valid is not None:
        own = some(own & valid)
    if out.null is not None:
        valid = both(valid, ~out.null)
    return Vector(result, out.data, valid, fallback), own
