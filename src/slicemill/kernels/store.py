"""Store of compiled kernels: a file for each function and its argument types.

The file name is a digest of the function's digest, the types, the versions of Python, NumPy, Numba, LLVM
and slicemill, and the processor. A file is written under a temporary name and then renamed, so that
readers see complete files. A process holds a lock with the key's name while it compiles; other processes
wait for the lock and then read the file. If the folder is not writable, or other users can write to it,
each process compiles its kernels without the store.

There are two folders: the user's cache, and a folder in the package with code that runs on any processor of
its architecture (`ship` fills it before a wheel is built).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

SHIPPED = Path(__file__).parent / "shipped"
ANY_PROCESSOR = "generic"  # name that Numba and LLVM use for an unspecified processor

_DIGEST = 32
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Compilation:
    """Metadata of a compiled function: name, argument types, and compile time."""

    name: str
    types: str
    cpu_s: float
    process: int


def cache_folder() -> Path:
    """Return the folder of compiled code: SLICEMILL_CACHE, or the user's cache folder."""
    chosen = os.environ.get("SLICEMILL_CACHE")
    if chosen:
        return Path(chosen) / "code"
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "slicemill" / "code"


def key_of(digest: str, types: str, processor: str | None = None) -> str:
    """Return the file name of a function's machine code."""
    made_for = processor or _processor()
    return hashlib.sha256("\0".join((digest, types, _environment_id(), made_for)).encode()).hexdigest()[:40]


def find(digest: str, types: str) -> Path | None:
    """Return the file of a function's machine code, or None.

    Files in a cache folder that other users can write to are ignored.
    """
    folder = cache_folder()
    for path in (folder / key_of(digest, types), SHIPPED / key_of(digest, types, ANY_PROCESSOR)):
        if path.exists() and (path.parent == SHIPPED or _is_ours(folder)):
            return path
    return None


def read(path: Path) -> tuple[Compilation, bytes] | None:
    """Return the content of a code file, or None if it is missing or damaged."""
    try:
        content = path.read_bytes()
        digest, rest = content[:_DIGEST], content[_DIGEST:]
        if hashlib.sha256(rest).digest() != digest:
            return None
        head, _, code = rest.partition(b"\n")
        return Compilation(**json.loads(head)), code
    except (OSError, ValueError, TypeError):
        return None


def write(key: str, compilation: Compilation, code: bytes) -> None:
    """Store a function's machine code, ignoring errors."""
    rest = json.dumps(asdict(compilation)).encode() + b"\n" + code
    with contextlib.suppress(OSError):
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(folder):
            return
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(rest).digest() + rest)
            Path(temporary).replace(folder / key)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise


def list_compilations(folder: Path) -> Iterator[Compilation]:
    """Yield the metadata of all compiled functions in a folder."""
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        found = None if path.suffix else read(path)
        if found is not None:
            yield found[0]


@dataclass(slots=True)
class Lock:
    """File lock that a process holds while it compiles a function."""

    path: Path
    handle: int

    def release(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        os.close(self.handle)


def acquire_lock(key: str) -> Lock | None:
    """Wait for the lock of a function that is to be compiled.

    Return None if no lock file can be created.
    """
    try:
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{key}.lock"
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(handle).st_ino:
                    return Lock(path, handle)
            os.close(handle)  # the previous owner of the lock has removed the lock file
    except OSError:
        return None


def _is_ours(folder: Path) -> bool:
    """Return True if no other user can write to the folder.

    Machine code that other users wrote must not run.
    """
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & _OTHERS_WRITE


@cache
def _environment_id() -> str:
    parts = [sys.implementation.cache_tag or "", platform.machine()]
    for name in ("slicemill", "numpy", "numba", "llvmlite"):
        with contextlib.suppress(PackageNotFoundError):  # slicemill may run from a source folder
            parts.append(f"{name} {version(name)}")
    return " ".join(parts)


@cache
def _processor() -> str:
    """Return an identifier of the processor that code is compiled for.

    The identifier is Numba's setting, or a digest of the system's description.
    """
    configured = os.environ.get("NUMBA_CPU_NAME")
    if configured:
        return configured
    features = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        features = "".join(
            line for line in lines if line.startswith(("model", "cpu family", "flags", "Features"))
        )
    return hashlib.sha256((features or platform.processor()).encode()).hexdigest()


# Digest of everything that a function's machine code depends on
#
# The digest covers the byte code and constants, the global constants that the function uses, and all
# kernels that it calls. The digest is the same on all machines. File names, line numbers and comments do not
# change it.


_PLAIN = (int, float, complex, bool, str, bytes, type(None), np.generic, np.dtype)


def digest_of(function: FunctionType, options: dict[str, Any]) -> str:
    """Return the digest of a function and the functions it calls."""
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
    """Yield the parts of the digest that describe a global variable.

    The parts of a slicemill module are those of the attributes that the code uses.
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
        for index, each in enumerate(value):
            yield from _value_parts(f"{name}[{index}]", each, names, seen)
    else:
        yield f"{name} is {getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value))}"
