"""What a kernel is: a function of whole columns, made for the types and constants of one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, NamedTuple, TypeAlias

from slicemill.esl.types.schema import Type
from slicemill.scalar.vectors import Data, Mask, Vector, both, either, some

VARIES: Final = object()  # in place of the value of an argument that is no constant


class Unfit(Exception):
    """The data at hand has no fast form, such as a text that is not ASCII: ask the reference."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A call as the maker of its kernel sees it, its arguments converted to the types the function takes."""

    function: str
    types: tuple[Type, ...]
    result: Type
    values: tuple[object, ...]

    def constant(self, index: int, default: object = VARIES) -> Any:
        """The value of a constant argument, VARIES for another, `default` for one that is left out."""
        return self.values[index] if index < len(self.values) else default


class Out(NamedTuple):
    """A result with more to say than its data: rows that become NULL, and rows the kernel does not answer."""

    data: Data
    null: Mask | None = None
    unsure: Mask | None = None

    def doubting(self, more: Mask) -> Out:
        return self._replace(unsure=either(self.unsure, more))


# Strict: columns of values in, values out; NULLs are seen to. Free: vectors in, a vector out.
Strict: TypeAlias = Callable[..., Any]
Free: TypeAlias = Callable[..., Vector]


@dataclass(frozen=True, slots=True)
class Kernel:
    """`patches`: unsure rows are common enough to be answered where they arise, by distinct arguments."""

    function: Strict | Free
    strict: bool = True
    patches: bool = False


Maker: TypeAlias = Callable[[Bound], "Kernel | Strict | None"]


def plain(function: Strict) -> Maker:
    """One kernel for all types and constants."""
    return lambda _bound: Kernel(function)


def free(function: Free) -> Maker:
    return lambda _bound: Kernel(function, strict=False)


def apply(kernel: Kernel, result: Type, vectors: list[Vector]) -> tuple[Vector, Mask | None]:
    """The kernel's answer, and which rows it left open itself (rather than its arguments did)."""
    if not kernel.strict:
        return kernel.function(*vectors), None
    valid = reduce(both, (vector.valid for vector in vectors))
    unsure = reduce(either, (vector.unsure for vector in vectors))
    out = kernel.function(*(vector.data for vector in vectors))
    if not isinstance(out, Out):
        return Vector(result, out, valid, unsure), None
    own = some(out.unsure)
    if own is not None and valid is not None:
        own = some(own & valid)
    if out.null is not None:
        valid = both(valid, ~out.null)
    return Vector(result, out.data, valid, unsure), own
