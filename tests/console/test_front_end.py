"""The front end's own checks: types, and tests of its logic by node's test runner."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parents[2] / "web"
_CHECKS = {"types": ["node_modules/typescript/bin/tsc", "--noEmit"], "logic": ["tools/test.mjs"]}


@pytest.mark.parametrize("check", _CHECKS)
def test_the_front_end_passes_its_checks(check: str) -> None:
    node = shutil.which("node")
    if node is None or not (WEB / "node_modules").is_dir():
        pytest.skip("node and the packages of web/ are not here (make console)")
    done = subprocess.run([node, *_CHECKS[check]], cwd=WEB, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
