"""An earlier version of slicemill, with its former engine, from the repository of this code."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from slicemill.errors import SlicemillError

BEFORE = "94f781c"


def source_before(folder: Path) -> Path:
    """Unpack the packages of that commit. Raises an error without a repository."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        top = subprocess.run(
            [*git, "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True
        )
        git = ["git", "-C", top.stdout.strip()]
        packed = subprocess.run([*git, "archive", f"{BEFORE}:src"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SlicemillError(f"commit {BEFORE} is not at hand: {error}") from None
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder
