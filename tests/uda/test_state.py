"""The state of a call survives being pickled, also in a process that has imported nothing else."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import numpy as np
from slicemill.uda.state import rows
from pyspark import cloudpickle
kept = rows(np.dtype([("x", "i8")]), 2, "Python")
kept[1].x = 7
back = cloudpickle.loads(cloudpickle.dumps(kept))
assert type(back) is np.recarray and back[1].x == 7
"""


def test_records_of_plain_python_come_back_as_records() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
