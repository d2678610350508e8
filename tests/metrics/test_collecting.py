"""Garbage collection is counted in the thread that it stops."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

from slicemill.metrics.profiling import collecting_seconds, process_collecting_seconds, watch_collections


def test_collections_are_counted_where_they_happen() -> None:
    watch_collections()
    watch_collections()
    before, before_process = collecting_seconds(), process_collecting_seconds()
    kept = [[number] for number in range(300_000)]
    gc.collect()
    took_s = collecting_seconds() - before
    assert len(kept) and took_s > 0
    assert process_collecting_seconds() - before_process >= took_s
    with ThreadPoolExecutor(1) as other:
        assert other.submit(collecting_seconds).result() == 0.0
