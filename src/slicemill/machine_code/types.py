"""Argument types as far as machine code depends on them, and their names.

Works without Numba.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

# For an array its dtype, dimensions and flags; for another value its type; for a tuple also its items' types.
Signature: TypeAlias = tuple[Any, ...]

C_ORDER, F_ORDER, WRITEABLE = 0x1, 0x2, 0x400  # NumPy's flag bits
_FLAGS = C_ORDER | F_ORDER | WRITEABLE


def signature_of(arguments: tuple[Any, ...]) -> Signature:
    return tuple(
        [
            (each.dtype, each.ndim, each.flags.num & _FLAGS) if type(each) is np.ndarray else _other(each)
            for each in arguments
        ]
    )


def _other(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.num & _FLAGS
    return (type(value), *signature_of(value)) if isinstance(value, tuple) else type(value)


def layout_of(flags: int) -> str:
    return "C" if flags & C_ORDER else "F" if flags & F_ORDER else "A"


def names_of(signature: Signature) -> str:
    return ", ".join(map(_name, signature))


def _name(kind: Any) -> str:
    if isinstance(kind, type):
        return scalar_name(kind)
    if isinstance(kind[0], np.dtype):
        dtype, ndim, flags = kind
        return array_name(dtype, ndim, layout_of(flags), bool(flags & WRITEABLE))
    return f"{kind[0].__qualname__}({names_of(kind[1:])})"


def array_name(dtype: np.dtype[Any], ndim: int, layout: str, writeable: bool) -> str:
    return f"{dtype_name(dtype)}[{ndim}{layout}{'' if writeable else ' const'}]"


def dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.names is None or dtype.fields is None:
        return dtype.str
    fields = (f"{name} {dtype_name(dtype.fields[name][0])} {dtype.fields[name][1]}" for name in dtype.names)
    return f"{{{'; '.join(fields)}; {dtype.itemsize}}}"


def scalar_name(kind: type) -> str:
    if kind is bool or kind is np.bool_:
        return "bool"
    if kind is int:
        return np.dtype(np.int64).str
    if kind is float:
        return np.dtype(np.float64).str
    return np.dtype(kind).str if issubclass(kind, np.generic) else kind.__qualname__
