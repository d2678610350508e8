"""Kernel: a function that runs as interpreted Python until it is compiled.

For each combination of argument types, a kernel is in one of three states:

| state | runs as | until |
|---|---|---|
| new | Python | its runs took LOAD_AFTER_S and stored code exists, or they took as long as compilation |
| requested | Python | a thread of this process has read or compiled the code |
| ready | machine code | |

If a call would take longer as Python than compilation takes, the call waits for the machine code. While
stored code is read, a call waits for at most the time that it would take as Python. All other calls run as
Python at once. So the total time is at most about twice that of the better choice.
SLICEMILL_COMPILE=always compiles at the first call, for tests. SLICEMILL_COMPILE=never runs all kernels as
Python.

Python mode imitates machine code: 64-bit arithmetic wraps around, division by zero is no error, and
fields of records are attributes.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from functools import cached_property, update_wrapper
from importlib import import_module
from types import FunctionType
from typing import Any, Protocol, TypeAlias, TypeVar, cast, overload

import numpy as np

from slicemill.kernels import store
from slicemill.kernels.store import digest_of

LOAD_AFTER_S = 0.005
# A kernel runs as Python for this multiple of its compile time, estimated from its bytecode length.
PATIENCE = 1.0
_COMPILE_S, _COMPILE_BYTE_S = 0.05, 5e-4
_GUESS_S = 2e-6  # assumed time per row of an interpreted kernel, until the time is measured
_MANY = 100  # minimum number of rows for measuring an interpreted kernel
_LOOK_EVERY_S = 1.0
_PIECE_S = 0.05
_NICENESS = 5

Function = TypeVar("Function", bound=Callable[..., Any])


class _ExecutionMode(Enum):
    """Execution mode of the kernels that a thread calls."""

    AS_READY = "as machine code, if that is ready"
    INTERPRETED = "as Python"
    INSIDE = "as Python, called by a kernel that is run as Python"


class _Thread(threading.local):
    calls = _ExecutionMode.AS_READY
    python_s = 0.0


_THREAD = _Thread()
_AS_READY = _ExecutionMode.AS_READY


def python_seconds() -> float:
    """Return the CPU seconds that this thread spent in interpreted kernels."""
    return _THREAD.python_s


@contextmanager
def interpret_kernels() -> Iterator[None]:
    """Within this context, interpret the kernels that this thread calls as Python."""
    with _calling(_ExecutionMode.INTERPRETED):
        yield


@contextmanager
def inside_python() -> Iterator[None]:
    """Within this context, interpret nested kernels, with NumPy's warnings disabled.

    The Python version of a kernel runs in this context.
    """
    with _calling(_ExecutionMode.INSIDE), np.errstate(all="ignore"):
        yield


@contextmanager
def _calling(how: _ExecutionMode) -> Iterator[None]:
    before, _THREAD.calls = _THREAD.calls, how
    try:
        yield
    finally:
        _THREAD.calls = before


class KernelTrial:
    """Measurements of an interpreted kernel, for one combination of argument types."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self.row_s = _GUESS_S
        self.looked_s = 0.0
        self.asked = False
        self.stored = False  # True if the store had the machine code when it was requested
        self.ended = threading.Event()  # set when the machine code is ready, or cannot be compiled


class KernelFunction:
    """Function that runs as Python, or as machine code when compiled.

    `rows` is the index of the argument whose length is the number of rows. Without `rows`, the size of the
    largest array is used.
    """

    def __init__(self, function: FunctionType, options: dict[str, Any], rows: int | None) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._options = options
        self._rows = rows
        self._code: dict[Signature, Callable[..., Any]] = {}
        self._trials: dict[Signature, KernelTrial] = {}
        self._row_s: float | None = None  # latest measured time per row of the interpreted kernel

    def __call__(self, *arguments: Any) -> Any:
        calls = _THREAD.calls
        if calls is not _AS_READY:
            inside = calls is _ExecutionMode.INSIDE
            return self.py_func(*arguments) if inside else self._as_python(KernelTrial(), 0, arguments)
        signature = self.signature(arguments)
        code = self._code.get(signature)
        if code is not None:
            return code(*arguments)
        return self._without_code(signature, arguments)

    def signature(self, arguments: tuple[Any, ...]) -> Signature:
        return signature_of(arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the kernel by name."""
        return _import_name, (self.py_func.__module__, self.py_func.__qualname__)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.py_func, self._options)

    @cached_property
    def dispatcher(self) -> Any:
        """Return the Numba dispatcher of the function."""
        from slicemill.kernels.numba_kernels import dispatcher_of

        return dispatcher_of(self, self._options)

    @property
    def targetoptions(self) -> dict[str, Any]:
        """Return the options of the kernel, which Numba reads to decide on inlining."""
        return self._options

    def compile(self, signature: Signature) -> None:
        """Read the machine code from the store, or compile the kernel."""
        from slicemill.kernels.numba_kernels import compile_kernel

        if signature not in self._code:
            self._code[signature] = compile_kernel(self, signature)

    def is_stored(self, signature: Signature) -> bool:
        return store.find(self.digest, names_of(signature)) is not None

    @property
    def _patience_s(self) -> float:
        return PATIENCE * (_COMPILE_S + _COMPILE_BYTE_S * len(self.py_func.__code__.co_code))

    def piece(self, rows: int) -> int:
        """Return the number of rows to pass in one call of the kernel.

        Callers need to be able to split their rows anywhere. The result is all rows if machine code exists,
        or if waiting for compilation pays off. Otherwise it is the number of rows that the interpreted kernel
        processes in `_PIECE_S`. The first call gets few rows, to measure the time per row.
        """
        if self._code or _mode() == "always":
            return rows
        row_s = self._row_s
        if row_s is None:
            return min(rows, _MANY)
        if _mode() == "auto" and row_s * rows > self._patience_s:
            return rows
        return min(rows, max(_MANY, int(_PIECE_S / row_s)))

    # -- interpretation as Python --------------------------------------------------------------------------

    def _without_code(self, signature: Signature, arguments: tuple[Any, ...]) -> Any:
        trial = self._trials.get(signature)
        if trial is None:
            trial = self._trials[signature] = KernelTrial()
        if _mode() == "always" and not trial.asked:
            trial.asked = True
            self.compile(signature)
            return self._code[signature](*arguments)
        rows = self._count(arguments)
        expected_s = trial.row_s * rows
        if not trial.asked and _mode() != "never" and self._is_due(signature, trial, expected_s):
            trial.asked = True
            _COMPILER.ask(self, signature, trial)
        if trial.asked and (trial.stored or expected_s > self._patience_s):
            trial.ended.wait(expected_s if trial.stored else None)
            code = self._code.get(signature)
            if code is not None:
                return code(*arguments)
        return self._as_python(trial, rows, arguments)

    def _is_due(self, signature: Signature, trial: KernelTrial, expected_s: float) -> bool:
        after_s = trial.spent_s + expected_s
        if after_s > self._patience_s:
            return True
        now = time.monotonic()
        if after_s < LOAD_AFTER_S or now - trial.looked_s < _LOOK_EVERY_S:
            return False
        trial.looked_s = now
        trial.stored = self.is_stored(signature)
        return trial.stored

    def _as_python(self, trial: KernelTrial, rows: int, arguments: tuple[Any, ...]) -> Any:
        records = [isinstance(each, np.ndarray) and each.dtype.names is not None for each in arguments]
        both = list(zip(arguments, records, strict=True))
        dtypes = {each.dtype: each.dtype for each, is_record in both if is_record}
        given = [each.view(with_attributes(each.dtype)) if is_record else each for each, is_record in both]
        began = time.thread_time()
        with inside_python():
            answer = self.py_func(*given)
        took_s = time.thread_time() - began
        trial.spent_s += took_s
        _THREAD.python_s += took_s
        if rows >= _MANY:
            trial.row_s = self._row_s = took_s / rows
        return _to_machine_types(answer, dtypes)

    def _count(self, arguments: tuple[Any, ...]) -> int:
        if self._rows is not None:
            return len(arguments[self._rows])
        return max((each.size for each in arguments if isinstance(each, np.ndarray)), default=1)


def _import_name(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _to_machine_types(value: Any, dtypes: Mapping[Any, Any]) -> Any:
    """Convert the result of an interpreted kernel to the types that machine code returns.

    NumPy scalars become Python numbers. `dtypes` maps dtypes with attribute access to the original dtypes,
    which compare equal.
    """
    if isinstance(value, tuple):
        return tuple([_to_machine_types(each, dtypes) for each in value])
    if isinstance(value, np.generic):
        return value.item()
    return value.view(dtypes[value.dtype]) if isinstance(value, np.ndarray) and value.dtype.names else value


def _mode() -> str:
    return os.environ.get("SLICEMILL_COMPILE", "auto")


class _Decorated(Protocol):
    def __call__(self, function: Function) -> Function: ...


@overload
def kernel(function: Function) -> Function: ...


@overload
def kernel(*, rows: int | None = None, **options: Any) -> _Decorated: ...


def kernel(function: Any = None, *, rows: int | None = None, **options: Any) -> Any:
    """Decorate a function as a kernel; pass the options to Numba."""

    def made(python: Any) -> Any:
        return KernelFunction(python, options, rows)

    return made if function is None else made(function)


class HelperFunction(KernelFunction):
    """Function that only kernels call, compiled into each kernel.

    Helpers have no wrappers for Python and C, which saves compile time.
    """

    def __call__(self, *arguments: Any) -> Any:
        return self.py_func(*arguments)


def helper(function: Function) -> Function:
    """Decorate a function that only kernels call."""
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, HelperFunction(cast(FunctionType, function), options, None))


class _Compiler:
    """Background thread of this process that compiles kernels one by one."""

    def __init__(self) -> None:
        self._process = 0
        self._asked: queue.SimpleQueue[tuple[KernelFunction, Signature, KernelTrial]] = queue.SimpleQueue()

    def ask(self, wanted: KernelFunction, signature: Signature, trial: KernelTrial) -> None:
        if self._process != os.getpid():  # a forked process has no compiler thread yet
            self._process, self._asked = os.getpid(), queue.SimpleQueue()
            threading.Thread(target=self._work, name="slicemill compiler", daemon=True).start()
        self._asked.put((wanted, signature, trial))

    def _work(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while True:
            wanted, signature, trial = self._asked.get()
            # A kernel that cannot be compiled continues to run as Python, with the same results.
            with suppress(Exception):
                wanted.compile(signature)
            trial.ended.set()


_COMPILER = _Compiler()


# Records in interpreted kernels: `record.field` works as in machine code


_get, _set = np.void.__getitem__, np.void.__setitem__


class AttributeRecord(np.void):  # type: ignore[misc]
    """Row of a structured array whose fields are attributes."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        return _get(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _set(self, name, value)


def with_attributes(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return an equal dtype whose rows are `AttributeRecord`s."""
    return np.dtype((AttributeRecord, dtype))


# Signatures: the argument types that machine code depends on, and their text form
#
# The functions below do not import Numba.


# Types of the arguments.
# An array has (dtype, dimensions, flags), and a tuple has (type, *signature of items).
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
