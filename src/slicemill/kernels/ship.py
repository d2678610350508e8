"""Copy compiled kernels into the package: `python -m slicemill.kernels.ship FOLDER`.

`make wheel` runs the test corpus with NUMBA_CPU_NAME=generic, which compiles the kernels for an unspecified
processor. This script then copies the machine code of slicemill's own kernels from the cache folder into
the package. A process uses this code if there is no code for its own processor and all versions match.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from slicemill.kernels.store import SHIPPED, read


def ship(folder: Path, target: Path = SHIPPED, package: str = "slicemill") -> int:
    """Copy the machine code of a package's kernels; return the number of files."""
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
