"""Machine code of kernels that comes with the package: `python -m slicemill.machine_code.ship FOLDER`.

`make wheel` compiles kernels for a processor of which nothing is known (NUMBA_CPU_NAME=generic), by running
the corpus of tests, and takes what is of the package itself from the cache that this has filled. A process
that finds no code for its own processor uses it, if versions are the same.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from slicemill.machine_code.store import SHIPPED, read


def ship(folder: Path, target: Path = SHIPPED, package: str = "slicemill") -> int:
    """Copy the code of a package's own kernels; how many files."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    count = 0
    for path in sorted(folder.iterdir()):
        found = None if path.suffix else read(path)
        if found is not None and found[0].name.startswith(f"{package}."):
            shutil.copyfile(path, target / path.name)
            count += 1
    return count


if __name__ == "__main__":
    print(f"{ship(Path(sys.argv[1]))} functions")
