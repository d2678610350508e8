"""Digest of everything that a function's machine code depends on.

The digest covers the byte code and constants, the module's constants that the function uses, and all
kernels that it calls. The digest is the same on all machines. File names, line numbers and comments are
not included, so that code may move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_PLAIN = (int, float, complex, bool, str, bytes, type(None), np.generic, np.dtype)


def digest_of(function: FunctionType, options: dict[str, Any]) -> str:
    """Return the digest of a function and of all functions that it calls."""
    found = hashlib.sha256(repr(sorted(options.items())).encode())
    for part in _parts(function, set()):
        found.update(part.encode() + b"\0")
    return found.hexdigest()


def _parts(function: FunctionType, seen: set[CodeType]) -> Iterator[str]:
    code = function.__code__
    if code in seen:
        return
    seen.add(code)
    names: set[str] = set()
    yield from _code_parts(code, names)
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    values = {name: function.__globals__[name] for name in names if name in function.__globals__}
    values |= {name: cell.cell_contents for name, cell in cells}
    for name in sorted(values):
        yield from _value_parts(name, values[name], names, seen)


def _code_parts(code: CodeType, names: set[str]) -> Iterator[str]:
    names.update(code.co_names)
    counts = (code.co_argcount, code.co_kwonlyargcount, code.co_flags)
    yield repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars, counts))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant, names)
        else:
            yield repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant)


def _value_parts(name: str, value: Any, names: set[str], seen: set[CodeType]) -> Iterator[str]:
    """Yield the parts of a global's value.

    For a slicemill module these are the members that the code uses.
    """
    python = getattr(value, "py_func", value)
    if isinstance(python, FunctionType):
        yield f"{name}:"
        yield from _parts(python, seen)
    elif isinstance(value, ModuleType):
        yield f"{name} is {value.__name__}"
        if value.__name__.startswith("slicemill"):
            for inner in sorted(names & vars(value).keys()):
                yield from _value_parts(inner, getattr(value, inner), names, seen)
    elif isinstance(value, _PLAIN):
        yield f"{name} = {value!r}"
    elif isinstance(value, np.ndarray):
        yield f"{name} = {value.dtype!r} {value.tolist()!r}"
    elif isinstance(value, tuple):
        for place, each in enumerate(value):
            yield from _value_parts(f"{name}[{place}]", each, names, seen)
    else:
        yield f"{name} is {getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value))}"
