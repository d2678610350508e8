"""Experiments on the product's engine: mills over the workers of a Spark session, in virtual time.

The clock is the experiment's, so what is counted (rows that wait, rows and bytes in state, comparisons) does
not depend on the machine. Processor time is what workers say of their runs; claims about it are `timed`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slicemill.engine.mill import Mill
from slicemill.engine.session import local_session
from slicemill.engine.workers.sharing import Pool
from slicemill.time import wall_clock_us

MakePool = Callable[[], Pool | None]


def _of_spark() -> Pool | None:
    """None: the mill borrows the workers of the session."""
    return None


make_pool: MakePool = _of_spark


class MovedClock:
    """A clock that the experiment moves."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@contextmanager
def fed_mill(esl: str, clock: MovedClock | None = None) -> Iterator[Mill]:
    """A mill whose streams get what the experiment feeds them; it runs when it is told to."""
    pool = make_pool()
    spark = None if pool is not None else local_session()
    with (
        tempfile.TemporaryDirectory(prefix="slicemill-lab-") as home,
        Mill(spark, Path(home), pool=pool, read_sources=False, clock=clock or wall_clock_us) as mill,
    ):
        mill.execute(esl)
        mill.open()
        yield mill
