"""Benchmark of a thousand queries: 2,000 rows through all of them, compared with an earlier engine.

The queries are distinct filters, sliding windows, OVER and joins over two streams. A batch has 1,600 bids and
400 offers
in two files. It is measured from the arrival of its files until every query has all of its results, which are
counted by
NumPy. Both engines run the same script over the same files, each alone in its own process with empty caches.
So the
first batch includes all compilation, and later batches none.

The earlier engine is that of commit 94f781c, checked out from the repository of this code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import slicemill
from slicemill.errors import SlicemillError
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.inputs.many import STREAMS, ExpectedOfMany, make_batches, write_batch
from slicemill_lab.bench.inputs.query_sets import (
    filter_query,
    join_query,
    mixed_queries,
    over_query,
    window_query,
)
from slicemill_lab.bench.rivals.before import BEFORE, source_before
from slicemill_lab.claims import Claim, at_most, timed
from slicemill_lab.experiment import Result, Scale

KINDS = ("filter", "window", "over", "join")
_PATIENCE_S = 3_600


@dataclass(frozen=True, slots=True)
class ManySizes:
    queries: int
    batches: int


# The first batch, and some warm batches, of which the best counts.
SIZES: Mapping[Scale, ManySizes] = {"small": ManySizes(100, 3), "full": ManySizes(1_000, 4)}


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    source = Path(slicemill.__file__).parents[1]
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name:
        folder = Path(name)
        now = _side(folder / "now", source, sizes)
        try:
            before: dict[str, Any] | None = _side(folder / "before", source_before(folder / "old"), sizes)
            why = ""
        except SlicemillError as error:
            before, why = None, f"not measured: {error}"
    claims = (
        at_most("queries with rows too many or missing", now["wrong"] + (before or {"wrong": 0})["wrong"], 0),
        _compared(now, before, why),
        timed(at_most("adding one query to the running mill, s", min(now["added_s"]), 0.1)),
    )
    figures = {
        "how": f"{sizes.queries} queries: {', '.join(KINDS)} in equal parts; 2 000 rows a batch, from the "
        "arrival of its files to the last result; caches empty at the start",
        "goal, s": 1.0,
        "load of the machine, 1 min": round(os.getloadavg()[0], 1),
        "now": _figures(now),
        f"commit {BEFORE}": why if before is None else _figures(before),
    }
    return Result(claims, figures)


def _compared(now: Mapping[str, Any], before: Mapping[str, Any] | None, why: str) -> Claim:
    what = f"2 000 rows through all queries, warm: seconds / those of commit {BEFORE}"
    if before is None:
        return timed(Claim(what, "≤ 0.1", "not measured", False, why))
    ours, theirs = (min(side["batches_s"][1:]) for side in (now, before))
    return timed(at_most(what, ours / theirs, 0.1, f"{ours:.2f} s, {theirs:.2f} s"))


def _figures(side: Mapping[str, Any]) -> dict[str, Any]:
    first, *warm = side["batches_s"]
    return {
        "first batch, s": round(first, 2),
        "warm batches, s": [round(each, 3) for each in warm],
        "registering all queries, s": round(side["start_s"], 2),
        "adding one query, s": [round(each, 3) for each in side["added_s"]],
        "tasks": side["tasks"],
        "memory, MB": side["memory_mb"],
    }


def job(folder: Path, sizes: ManySizes) -> dict[str, Any]:
    """Create the script, files and expected results for one engine."""
    queries = mixed_queries(sizes.queries, KINDS)
    batches = make_batches(sizes.batches)
    folders = {stream: folder / "in" / stream for stream in STREAMS}
    for each in folders.values():
        each.mkdir(parents=True)
    statements = [
        f"CREATE STREAM {stream} ({columns}) ORDER BY ts USING parquet OPTIONS (path '{folders[stream]}');"
        for stream, columns in STREAMS.items()
    ]
    statements += [f"CREATE QUERY {name} AS {text};" for name, text in queries.items()]
    more = sizes.queries // len(KINDS) + 1
    made = []
    for number, batch in enumerate(batches):
        expected = ExpectedOfMany(batches[: number + 1])
        files = write_batch(batch, folder / f"batch-{number}")
        made.append(
            {
                "files": {stream: str(path) for stream, path in files.items()},
                "results": {name: expected.count(name) for name in queries},
            }
        )
    makers = (filter_query, over_query, window_query, join_query)
    return {
        "home": str(folder / "home"),
        "script": "\n".join(statements),
        "folders": {stream: str(each) for stream, each in folders.items()},
        "batches": made,
        "added": [f"CREATE QUERY more_{i} AS {make(more, '')}" for i, make in enumerate(makers)],
    }


def _side(folder: Path, source: Path, sizes: ManySizes) -> dict[str, Any]:
    """Run a version of slicemill with the packages in `source`."""
    folder.mkdir(parents=True)
    file = folder / "job.json"
    file.write_text(json.dumps(job(folder, sizes)))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "measuring" / "many_side.py"), str(file)],
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        env={
            **os.environ,
            "PYTHONPATH": str(source),
            "NUMBA_CACHE_DIR": str(folder / "numba"),
            "SLICEMILL_CACHE": str(folder / "cache"),
        },
    )
    if done.returncode:
        raise SlicemillError(f"the run in {source} failed: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


BENCHMARK = Benchmark("A thousand queries, beside the engine before", run)
