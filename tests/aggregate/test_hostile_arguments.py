"""Hostile arguments of all functions in other processes: compiled code never reads out of bounds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOSTILE = Path(__file__).with_name("hostile.py")


def tried(*kinds: str, **environment: str) -> str:
    """Return one line for each failure."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HOSTILE), *kinds],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        check=False,
    )
    # A segmentation fault has a negative exit status.
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert "tried" in done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["builtins", "models", "scalars"])
def test_hostile_arguments_give_values_or_error_messages(kind: str) -> None:
    assert tried(kind) == ""
