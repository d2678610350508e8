"""One engine's side of the benchmark of many queries, for the version of `slicemill` on PYTHONPATH.

    python many_side.py JOB.json

Only interfaces that every version has are used. The job has the script, the files of each batch, the folders
in which they arrive, and the expected number of results of each query after each batch. Prints one line of
JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

_PATIENCE_S = 600.0


def local_session() -> Any:
    """Return a local session. Its module depends on the version."""
    for name in ("slicemill.runtime.spark_session", "slicemill.engine.session", "slicemill.runtime.session"):
        try:
            return import_module(name).local_session()
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("this version of slicemill has no local_session")


def main(job: Mapping[str, Any]) -> dict[str, Any]:
    mill_class = import_module("slicemill").Mill
    spark = local_session()
    began = time.monotonic()
    mill = mill_class(spark, Path(job["home"]))
    mill.execute(job["script"])
    mill.start()
    started_s = time.monotonic() - began
    batches: list[float] = []
    for batch in job["batches"]:
        began = time.monotonic()
        for stream, path in batch["files"].items():
            (Path(job["folders"][stream]) / f"{len(batches):05d}.parquet").hardlink_to(path)
        wait_for(mill, batch["results"])
        batches.append(time.monotonic() - began)
    wrong = sum(
        not low <= rows_of(mill.queries[name]) <= low + len(batches)
        for name, low in job["batches"][-1]["results"].items()
    )
    added = []
    for statement in job["added"]:
        began = time.monotonic()
        mill.execute(statement)
        added.append(time.monotonic() - began)
    found = {
        "start_s": started_s,
        "batches_s": batches,
        "added_s": added,
        "wrong": wrong,
        "tasks": number_of_units(mill),
        "memory_mb": memory_mb(),
    }
    mill.close()
    spark.stop()
    return found


def wait_for(mill: Any, results: Mapping[str, int]) -> None:
    """Wait until each query has the wanted number of results. Complete queries are not polled again."""
    ends, left = time.monotonic() + _PATIENCE_S, list(results.items())
    while left:
        name, wanted = left[-1]
        if rows_of(mill.queries[name]) >= wanted:
            left.pop()
            continue
        if time.monotonic() > ends:
            rows = rows_of(mill.queries[name])
            raise TimeoutError(f"{len(left)} queries are not done; {name} has {rows} of {wanted} rows")
        mill.dispatcher.check()
        time.sleep(0.002)


def rows_of(query: Any) -> int:
    """Return the number of results of a query. The method's name depends on the version."""
    return int((getattr(query, "measured", None) or query.metrics)().rows)


def number_of_units(mill: Any) -> int | None:
    """Return the number of tasks, if this version exposes it."""
    for holder in (mill, getattr(mill, "dispatcher", None)):
        tasks = getattr(holder, "tasks", None)
        if tasks is not None and not callable(tasks):
            return len(tasks)
    return None


def memory_mb() -> dict[str, dict[str, int]]:
    """Return resident and proportional memory of this process and its descendants, by kind.

    A page shared by several processes counts in full for each in resident memory, and once in total in
    proportional memory.
    """
    driver = psutil.Process()
    found: dict[str, dict[str, int]] = {}
    for process in (driver, *driver.children(recursive=True)):
        try:
            memory = process.memory_full_info()
            kind = "driver" if process == driver else process.name()
        except psutil.NoSuchProcess:
            continue  # it ended in the meantime
        sums = found.setdefault(kind, {"processes": 0, "rss": 0, "pss": 0})
        sums["processes"] += 1
        sums["rss"] += memory.rss // 1_000_000
        sums["pss"] += memory.pss // 1_000_000
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
