"""The cache of generated modules: shared by processes, and never in the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slicemill.aggregate.compiler import store

SOURCE = '''"""A module."""

from numba import njit


@njit(cache=True)
def twice(x):
    return 2 * x
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLICEMILL_CACHE", str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("slicemill_generated.")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path / "uda"


def test_a_module_is_written_once_and_its_machine_code_kept(folder: Path) -> None:
    assert store.load(SOURCE).twice(4) == 8
    (path,) = folder.glob("*.py")
    assert list(folder.rglob("*.nbi"))
    script = f"m = store.load({SOURCE!r}); m.twice(4); print(sum(m.twice.stats.cache_hits.values()))"
    command = [sys.executable, "-c", f"from slicemill.aggregate.compiler import store; {script}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1", "the other process compiled it again"
    assert [path] == list(folder.glob("*.py"))


def test_a_damaged_file_is_written_again(folder: Path) -> None:
    path = Path(str(store.load(SOURCE).__file__))
    path.write_text("nonsense(", encoding="utf-8")
    sys.modules.pop(f"slicemill_generated.{path.stem}")
    assert store.load(SOURCE).twice(4) == 8
    assert folder in path.parents


def test_a_folder_that_cannot_be_written_costs_a_compilation(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.parent.joinpath("file").write_text("", encoding="utf-8")
    monkeypatch.setenv("SLICEMILL_CACHE", str(folder.parent / "file"))
    assert store.load(SOURCE).twice(4) == 8
