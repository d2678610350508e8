"""The state of a call can be pickled in one process and used in another, whatever either has imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from pyspark import cloudpickle

WRITE = """
import sys
import numpy as np
from slicemill.uda.state import rows
from pyspark import cloudpickle
kept = rows(np.dtype([("x", "i8")]), 2, "Python")
kept[1].x = 7
open(sys.argv[1], "wb").write(cloudpickle.dumps(kept))
"""


def test_records_of_plain_python_come_back_as_records(tmp_path: Path) -> None:
    path = tmp_path / "state"
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    back = cloudpickle.loads(path.read_bytes())
    assert type(back) is np.recarray
    assert back[1].x == 7
