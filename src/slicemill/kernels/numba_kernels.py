"""Compilation of kernels by Numba, with code from the store.

This module is imported only when a kernel is compiled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba.core import caching, compiler, serialize, typed_passes
from numba.core import types as numba_own
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import typeof_impl
from numba.np.numpy_support import as_dtype, from_dtype

from slicemill.kernels import store
from slicemill.kernels.kernel import WRITEABLE, KernelFunction, Signature, array_name, dtype_name, layout_of

# The name is typed as Any, because Numba's own annotations are incomplete.
types: Any = numba_own
_compiler: Any = compiler
_passes: Any = typed_passes
_serialize: Any = serialize

_PYTHON = {int: types.int64, float: types.float64, bool: types.boolean, np.bool_: types.boolean}


def dispatcher_of(wanted: KernelFunction, options: dict[str, Any]) -> Any:
    made = numba.njit(**options)(wanted.py_func)
    made._cache = _KernelCache(wanted)
    return made


@typeof_impl.register(KernelFunction)
def _as_dispatcher(value: KernelFunction, context: object) -> Any:
    """Return Numba's type of a kernel that another kernel calls."""
    del context
    return types.Dispatcher(value.dispatcher)


def initialise_numba() -> None:
    """Initialise Numba, which takes 0.2 s of CPU time per process."""
    cpu_target.target_context.refresh()
    cpu_target.typing_context.refresh()


def return_type(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Return the result type of a function that Numba infers.

    Raise Numba's error if the function is not supported.
    """
    typing, target = cpu_target.typing_context, cpu_target.target_context
    with global_compiler_lock:
        typing.refresh()
        target.refresh()
        inferred = _passes.type_inference_stage(
            typing, target, _compiler.run_frontend(function), arguments, None
        )
    return inferred[1]


def numba_types(signature: Signature) -> tuple[Any, ...]:
    return tuple(map(_numba_type, signature))


def _numba_type(kind: Any) -> Any:
    if isinstance(kind, type):
        if kind in _PYTHON:
            return _PYTHON[kind]
        return from_dtype(np.dtype(kind)) if issubclass(kind, np.generic) else types.none
    if isinstance(kind[0], np.dtype):
        dtype, ndim, flags = kind
        return types.Array(from_dtype(dtype), ndim, layout_of(flags), readonly=not flags & WRITEABLE)
    return types.BaseTuple.from_types(numba_types(kind[1:]), kind[0])


def _names(args: Any) -> str:
    return ", ".join(_name(each) for each in getattr(args, "args", args))


def _name(kind: Any) -> str:
    """Return the text of a Numba type, equal to the text in `kernel.names_of`."""
    if isinstance(kind, types.Array):
        return array_name(as_dtype(kind.dtype), kind.ndim, kind.layout, kind.mutable)
    if isinstance(kind, types.Literal):
        return str(kind)
    if kind == types.boolean:
        return "bool"
    if isinstance(kind, types.Integer | types.Float | types.Record):
        return dtype_name(as_dtype(kind))
    if isinstance(kind, types.BaseTuple):
        return f"{getattr(kind, 'instance_class', tuple).__qualname__}({_names(list(kind))})"
    return str(kind)


@dataclass(slots=True)
class _RunningCompilation:
    """Compilation in progress; `inside_s` is the CPU time of nested compilations."""

    names: str
    lock: store.Lock | None
    began_s: float
    inside_s: float = 0.0


_BEGUN: list[_RunningCompilation] = []  # stack of nested compilations in the thread that holds Numba's lock


def compile_kernel(wanted: KernelFunction, signature: Signature) -> Callable[..., Any]:
    """Return the machine code of a kernel for these argument types."""
    return compile_for(wanted, numba_types(signature))


def is_stored(wanted: KernelFunction, arguments: Any) -> bool:
    return store.find(wanted.digest, _names(arguments)) is not None


def compile_for(wanted: KernelFunction, arguments: Any) -> Callable[..., Any]:
    with global_compiler_lock:
        try:
            code: Callable[..., Any] = wanted.dispatcher.compile(arguments)
        finally:
            while _BEGUN:  # remove failed compilations, which have not been ended
                _end(_BEGUN.pop())
    return code


def _end(begun: _RunningCompilation) -> float:
    """End a compilation; return its CPU seconds without nested compilations."""
    took_s = time.thread_time() - begun.began_s
    if _BEGUN:
        _BEGUN[-1].inside_s += took_s
    if begun.lock is not None:
        begun.lock.release()
    return took_s - begun.inside_s


class _KernelCache(caching._Cache):
    """Numba's cache interface: read machine code before compiling, store it afterwards.

    The lock of the store is held in between, so that only one process compiles a kernel.
    """

    cache_path = None

    def __init__(self, wanted: KernelFunction) -> None:
        self._wanted = wanted

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        names = _names(sig)
        target_context.refresh()
        found = self._read(names, target_context)
        if found is None:
            lock = store.acquire_lock(store.key_of(self._wanted.digest, names))
            found = self._read(names, target_context)
            if found is None:
                _BEGUN.append(_RunningCompilation(names, lock, time.thread_time()))
            elif lock is not None:
                lock.release()
        return found

    def save_overload(self, sig: Any, cres: Any) -> None:
        names, digest = _names(sig), self._wanted.digest
        begun = _BEGUN.pop()
        assert begun.names == names, "what is called is compiled before what calls it"
        code = None
        if not cres.lifted and not cres.library.has_dynamic_globals:
            code = _serialize.dumps(cres._reduce())
        lock, begun.lock = begun.lock, None
        compilation = store.Compilation(self._wanted.name, names, _end(begun), os.getpid())
        if code is not None:
            store.write(store.key_of(digest, names), compilation, code)
        if lock is not None:
            lock.release()

    def _read(self, names: str, target_context: Any) -> Any:
        path = store.find(self._wanted.digest, names)
        content = None if path is None else store.read(path)
        if content is None:
            return None
        try:
            return _compiler.CompileResult._rebuild(target_context, *_serialize.loads(content[1]))
        except Exception:  # Numba cannot read the file, although its key matches
            return None

    def enable(self) -> None: ...

    def disable(self) -> None: ...

    def flush(self) -> None: ...
