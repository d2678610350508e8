"""Spark's Python worker daemon with what tasks need imported before it forks: a new worker starts warm.

A worker collects garbage after every task. What is imported here is left out of that: looking through it cost
a task some 30 ms of processor time, many times what a small one takes.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import slicemill.runtime.ingest
import slicemill.runtime.task  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    manager()
