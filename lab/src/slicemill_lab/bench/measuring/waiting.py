"""Waiting for the end of measured work, with a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError

_PATIENCE_S = 900


def wait_until(done: Callable[[], bool], state: Callable[[], str], every_s: float = 0.005) -> None:
    """Wait until `done`. Raises an error with `state` after a quarter of an hour."""
    ends = time.monotonic() + _PATIENCE_S
    while not done():
        if time.monotonic() > ends:
            raise SlicemillError(f"not done after {_PATIENCE_S} s: {state()}")
        time.sleep(every_s)


def wait_for_counts(
    counts: Callable[[], Sequence[int]], expected: Sequence[int], check: Callable[[], None] = lambda: None
) -> None:
    """Wait until each query has the expected number of results. `check` raises on failures."""

    def done() -> bool:
        check()
        return all(count >= wanted for count, wanted in zip(counts(), expected, strict=True))

    wait_until(done, lambda: f"there are {list(counts())} of {list(expected)} results")


def wait_for(mill: Mill, query: str, rows: int) -> None:
    """Wait until a query has a number of results."""
    found = mill.queries[query]
    wait_for_counts(lambda: [found.measured().rows], [rows], mill.dispatcher.check)


def wait_until_read(mill: Mill, queries: Sequence[str]) -> None:
    """Wait until all fed rows are admitted and read by all of the queries."""

    def done() -> bool:
        mill.dispatcher.check()
        fed = any(stream.has_handed for stream in mill.running.streams.values())
        return not fed and not any(mill.queries[name].lag_rows() for name in queries)

    wait_until(
        done, lambda: f"rows that wait: { ({name: mill.queries[name].lag_rows() for name in queries}) }", 0.02
    )
