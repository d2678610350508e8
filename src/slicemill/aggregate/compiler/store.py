"""Generated modules on disk, so that machine code is compiled once and every other process loads it.

A module's file is named after its content and all that its machine code depends on. It is written once, under
another name first: whoever sees it sees all of it. A folder that cannot be written, or a damaged file of
Numba's, costs a compilation, never a query.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numba

from slicemill.aggregate.compiler import support
from slicemill.aggregate.exact import accumulator, limbs
from slicemill.columns import sorting
from slicemill.model import heaps, numerics


def cache_folder() -> Path:
    """SLICEMILL_CACHE, or the user's cache folder."""
    chosen = os.environ.get("SLICEMILL_CACHE")
    if chosen:
        return Path(chosen) / "uda"
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "slicemill" / "uda"


@cache
def _surroundings() -> bytes:
    """What machine code depends on beside its own source."""
    called = (accumulator, limbs, support, sorting, numerics, heaps)
    texts = [Path(str(module.__file__)).read_bytes() for module in called]
    versions = f"{sys.version} {numba.__version__} {platform.machine()}".encode()
    return b"\0".join([versions, *texts])


def load(source: str) -> ModuleType:
    """The module of a source, kept on disk where that is possible."""
    digest = hashlib.sha256(_surroundings() + source.encode()).hexdigest()[:24]
    name = f"uda_{digest}"
    known = sys.modules.get(f"slicemill_generated.{name}")
    if known is not None:
        return known
    try:
        path = _written(cache_folder() / f"{name}.py", source)
        made = _imported(f"slicemill_generated.{name}", path)
    except OSError:
        made = load_from_memory(source)
    sys.modules[f"slicemill_generated.{name}"] = made
    return made


def load_from_memory(source: str, values: dict[str, Any] | None = None) -> ModuleType:
    """The module without a file: what it compiles is not kept."""
    made = ModuleType("slicemill_generated")
    made.__dict__.update(values or {})
    exec(compile(source.replace("cache=True", "cache=False"), "<generated>", "exec"), made.__dict__)
    return made


def _written(path: Path, source: str) -> Path:
    try:
        if path.read_text(encoding="utf-8") == source:
            return path
    except (OSError, UnicodeDecodeError):
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(source)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _imported(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a file that ends in .py can be imported"
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
