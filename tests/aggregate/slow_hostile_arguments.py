"""Hostile arguments with bounds checks in machine code; the compilation takes minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggregate.test_hostile_arguments import tried


@pytest.mark.parametrize("kind", ["builtins", "models"])
def test_no_kernel_reads_out_of_bounds(kind: str, tmp_path: Path) -> None:
    folders = {"NUMBA_CACHE_DIR": str(tmp_path / "kernels"), "SLICEMILL_CACHE": str(tmp_path / "generated")}
    assert tried(kind, NUMBA_BOUNDSCHECK="1", **folders) == ""
