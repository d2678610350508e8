"""A wheel built from a fresh clone contains the web console."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_pip_packs_the_console_from_a_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path)]
    subprocess.run([*pip, str(clone)], check=True)
    (wheel,) = tmp_path.glob("slicemill-*.whl")
    packed = zipfile.ZipFile(wheel).namelist()
    assert "slicemill/server/console/index.html" in packed
    assert "slicemill/aggregates/__init__.py" in packed
