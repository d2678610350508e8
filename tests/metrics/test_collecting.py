"""Garbage collection time is counted for the thread that the collection stops."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

from slicemill.metrics.profiling import gc_seconds, process_gc_seconds, watch_gc


def test_collections_count_for_the_thread_in_which_they_run() -> None:
    watch_gc()
    watch_gc()
    before, before_process = gc_seconds(), process_gc_seconds()
    kept = [[number] for number in range(300_000)]
    gc.collect()
    took_s = gc_seconds() - before
    assert len(kept) and took_s > 0
    # Differences of sums of floats differ in their last digits.
    assert process_gc_seconds() - before_process >= took_s - 1e-9
    with ThreadPoolExecutor(1) as other:
        assert other.submit(gc_seconds).result() == 0.0
