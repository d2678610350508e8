"""Flink from PyPI in a separate virtual environment, which is created once in the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

VERSION = "2.3.0"
_PATIENCE_S = 900


def environment_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "slicemill" / f"flink-{VERSION}"


def flink_python() -> tuple[Path | None, str]:
    """Return the Python with Flink, or None and the reason."""
    folder = environment_folder()
    python, done = folder / "bin" / "python", folder / "installed"
    if done.exists():
        return python, ""
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"],
            check=True,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return None, f"apache-flink {VERSION} was not installed within {_PATIENCE_S} s"
    except subprocess.CalledProcessError as error:
        said = str(error.stderr or "").strip().splitlines()
        return None, f"apache-flink {VERSION} cannot be installed: {said[-1] if said else error}"
    done.touch()
    return python, ""
