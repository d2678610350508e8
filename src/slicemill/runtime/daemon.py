"""Spark's Python worker daemon with what tasks need imported before it forks: a new worker starts warm."""

from __future__ import annotations

from pyspark.daemon import manager

import slicemill.runtime.ingest
import slicemill.runtime.task  # noqa: F401

if __name__ == "__main__":
    manager()
