"""Waiting for the results of a query that is measured."""

from __future__ import annotations

import time

from slicemill.errors import SlicemillError
from slicemill.runtime.mill import Mill

_PATIENCE_S = 300


def wait_for(mill: Mill, query: str, rows: int) -> None:
    """Until the query has so many results."""
    ends = time.monotonic() + _PATIENCE_S
    found = mill.queries[query]
    while found.metrics().rows < rows:
        mill.check()
        if time.monotonic() > ends:
            raise SlicemillError(f"only {found.metrics().rows} of {rows} results after {_PATIENCE_S} s")
        time.sleep(0.005)
