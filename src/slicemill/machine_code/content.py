"""What the machine code of a function depends on, as a digest: the same text gives the same one anywhere.

A function's digest is that of its byte code and constants, of the constants of its module that it names, and
of all kernels that it calls. Files, line numbers and comments are no part of it: so code may move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_PLAIN = (int, float, complex, bool, str, bytes, type(None), np.generic, np.dtype)


def digest_of(function: FunctionType, options: dict[str, Any]) -> str:
    """The digest of a function and of all that it calls."""
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
    """What a name of a module stands for; of a module of ours, what is named of it."""
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
