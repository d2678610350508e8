"""Experiments on the product's engine: mills on the workers of a Spark session, in virtual time.

The experiment controls the clock, so counts (waiting rows, rows and bytes of state, comparisons) do not
depend on the machine. CPU time is reported by the workers, and claims about it are `timed`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slicemill.api.mill import Mill
from slicemill.runtime.spark_session import local_session
from slicemill.runtime.workers.sharing import Pool
from slicemill.testing import open_mill
from slicemill.time import wall_clock_us

MakePool = Callable[[], Pool | None]


def _of_spark() -> Pool | None:
    """Return None, so that the mill uses the workers of the Spark session."""
    return None


make_pool: MakePool = _of_spark


class MovedClock:
    """Clock that the experiment advances."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@contextmanager
def fed_mill(esl: str, clock: MovedClock | None = None) -> Iterator[Mill]:
    """Open a mill whose streams receive only the rows that the experiment feeds. It runs only on request."""
    pool = make_pool()
    spark = None if pool is not None else local_session()
    with (
        tempfile.TemporaryDirectory(prefix="slicemill-lab-") as home,
        open_mill(spark, Path(home), pool=pool, read_sources=False, clock=clock or wall_clock_us) as mill,
    ):
        mill.execute(esl)
        mill.open()
        yield mill
