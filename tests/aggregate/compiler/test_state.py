"""The state of a call can be stored in one process and used in another process with other imports."""

from __future__ import annotations

import numpy as np

from slicemill.aggregates.udf.compiler.state import rows
from support.stored import stored


def test_records_of_plain_python_are_restored_as_records() -> None:
    kept = rows(np.dtype([("x", "i8")]), 2, "Python")
    kept[1].x = 7
    back = stored(kept)
    assert type(back) is np.recarray
    assert back[1].x == 7
