"""Start-up costs: commands import only the libraries that they need, and imports compile nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

AUCTION = Path(__file__).parents[1] / "examples" / "auction.esl"
HEAVY = ("numba", "numpy", "pyarrow", "pyspark", "pandas", "matplotlib")

RUN_AND_LIST = """
import sys
sys.argv[0] = "slicemill"
from slicemill.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print("loaded:", *(name for name in {heavy} if name in sys.modules), file=sys.stderr)
"""

# Numba sends events for all compilations: of kernels, of loops, of helpers and of inlined functions.
IMPORT_AND_COUNT = """
from numba.core import event
recorder = event.RecordingListener()
event.register("numba:compile", recorder)
import {module}
print("compiled:", len(recorder.buffer))
"""


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
        check=True,
    )


@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("--help",), ("check", str(AUCTION)), ("check", "--json", str(AUCTION))],
    ids=" ".join,
)
def test_commands_that_only_read_a_script_import_no_heavy_library(arguments: tuple[str, ...]) -> None:
    done = python(RUN_AND_LIST.format(heavy=HEAVY), *arguments)
    assert done.stderr.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("module", ["slicemill.runtime.worker", "slicemill.operators.join.step"])
def test_import_of_worker_modules_compiles_nothing(module: str, tmp_path: Path) -> None:
    done = python(IMPORT_AND_COUNT.format(module=module), NUMBA_CACHE_DIR=str(tmp_path))
    assert done.stdout.splitlines()[-1] == "compiled: 0"
