"""Machine code on disk: compiled once for all processes, found by content, and replaced if damaged."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from slicemill.kernels import store
from slicemill.kernels.ship import ship
from slicemill.kernels.store import digest_of

# Two kernels that call a third. A process reports when it is ready, waits for a line, and calls a kernel.
MODULE = """
import numpy as np
from slicemill.kernels.kernel import helper, kernel

FACTOR = 2

@helper
def inner(x):
    return FACTOR * x + 1

@kernel
def total(values):
    found = 0
    for i in range(len(values)):
        found += inner(values[i])
    return found

@kernel
def greatest(values):
    found = 0
    for i in range(len(values)):
        found = max(found, inner(values[i]))
    return found
"""
CALL = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
import some_kernels
from pathlib import Path
from slicemill.kernels import store
store.SHIPPED = Path(sys.argv[1]) / "shipped"
print("ready", flush=True)
sys.stdin.readline()
print(*[getattr(some_kernels, name)(np.arange(4)) for name in sys.argv[2:]], flush=True)
"""


def called(
    folder: Path, cache: Path, kernels: Sequence[Sequence[str]], text: str = MODULE, **environment: str
) -> list[str]:
    """Return the output of processes that call kernels simultaneously."""
    folder.mkdir(exist_ok=True)
    (folder / "some_kernels.py").write_text(text, encoding="utf-8")
    environment = {**os.environ, "SLICEMILL_CACHE": str(cache), "SLICEMILL_COMPILE": "always", **environment}
    processes = [
        subprocess.Popen(
            [sys.executable, "-B", "-c", CALL, str(folder), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for names in kernels
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return [process.communicate("go\n")[0].strip() for process in processes]


def compiled(cache: Path) -> dict[str, int]:
    """Return the stored functions, with the process that compiled each."""
    return {told.name: told.process for told in store.list_compilations(cache / "code")}


def test_processes_that_start_together_compile_each_function_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert called(tmp_path / "a", cache, [["total"], ["total", "greatest"]]) == ["16", "16 7"]
    first = compiled(cache)
    assert sorted(first) == ["some_kernels.greatest", "some_kernels.inner", "some_kernels.total"]
    assert not list((cache / "code").glob("*.lock"))
    assert stat.S_IMODE((cache / "code").stat().st_mode) == 0o700
    # Other locations of the source and other comments need no new compilation.
    moved = MODULE.replace("FACTOR = 2", "# A comment.\n\n\nFACTOR = 2")
    assert called(tmp_path / "b", cache, [["total", "greatest"]], moved) == ["16 7"]
    assert compiled(cache) == first
    # The functions that a kernel calls, and their constants, are part of its key.
    changed = MODULE.replace("FACTOR = 2", "FACTOR = 3")
    assert called(tmp_path / "a", cache, [["total"]], changed) == ["22"]


def test_a_damaged_file_or_a_foreign_folder_costs_a_compilation(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert called(tmp_path / "a", cache, [["total"]]) == ["16"]
    for path in (cache / "code").iterdir():
        path.write_bytes(path.read_bytes()[:-10])
    assert called(tmp_path / "a", cache, [["total"]]) == ["16"]
    assert sorted(compiled(cache)) == ["some_kernels.inner", "some_kernels.total"], "they were written again"
    (cache / "code").chmod(0o777)
    before = compiled(cache)
    assert called(tmp_path / "a", cache, [["total"]]) == ["16"]
    assert compiled(cache) == before, "nothing of it was used or changed"
    (tmp_path / "file").write_text("")
    assert called(tmp_path / "a", tmp_path / "file", [["total"]]) == ["16"]


def test_a_process_killed_during_a_compilation_does_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLICEMILL_CACHE", str(tmp_path))
    code = (
        "import time; from slicemill.kernels import store; store.acquire_lock('k'); print(); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        other.kill()
    began = time.monotonic()
    lock = store.acquire_lock("k")
    assert lock is not None and time.monotonic() - began < 60
    lock.release()


def test_the_package_contains_code_for_any_processor(tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert called(tmp_path / "a", made, [["total"]], NUMBA_CPU_NAME="generic") == ["16"]
    assert ship(made / "code", tmp_path / "a" / "shipped", "some_kernels") == 2
    assert called(tmp_path / "a", tmp_path / "cache", [["total"]]) == ["16"]
    assert not compiled(tmp_path / "cache"), "nothing was to be compiled"


def test_keys_differ_by_processor_and_types(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: int) -> int:
        return x

    digest = digest_of(function, {})
    keys = {
        store.key_of(digest, types, cpu) for types in ("<i8", "<f8") for cpu in (None, "generic", "other")
    }
    assert len(keys) == 6
    assert digest_of(function, {"inline": "always"}) != digest
