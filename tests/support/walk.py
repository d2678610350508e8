"""The files and functions that one batch passes, from a Parquet file to a result.

    python tests/support/walk.py window           # or join; --list prints each file with its functions

A mill with workers in this process reads one batch as a warm-up. The second batch is traced.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pyarrow.parquet as pq

import slicemill
from slicemill.api.mill import Mill
from slicemill.testing import inline_pool, open_mill
from support.engine import turn

ROWS, STEP_US, START_US, LIMIT_S = 2_000, 10_000, 1_700_000_000_000_000, 60
SOURCE = f"{Path(slicemill.__file__).resolve().parent}/"

_STREAM = (
    "CREATE STREAM {0} (k bigint, v bigint, ts timestamp) ORDER BY ts SOURCE '{{folder}}/{0}/*.parquet';\n"
)
SCRIPTS: Mapping[str, str] = {
    "window": _STREAM.format("s")
    + "CREATE QUERY q1 AS SELECT k, count(*) AS c, sum(v) AS t "
    + "FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY k;\n"
    + "CREATE QUERY q2 AS SELECT k, max(v) AS m "
    + "FROM s [RANGE 20 SECONDS SLIDE 2 SECONDS] WHERE v > 10 GROUP BY k;",
    "join": _STREAM.format("s")
    + _STREAM.format("r")
    + "CREATE QUERY q1 AS SELECT a.k, a.v, b.v AS w "
    + "FROM s [RANGE 1 SECONDS] AS a, r [RANGE 1 SECONDS] AS b WHERE a.k = b.k;",
}


@dataclass(slots=True)
class Walk:
    """Trace of one batch: functions by file, and the calls between files."""

    files: dict[str, list[str]] = field(default_factory=dict)
    calls: int = 0
    arcs: set[tuple[str, str]] = field(default_factory=set)  # caller and callee
    rows: int = 0

    @property
    def functions(self) -> int:
        """Return the number of distinct functions."""
        return sum(map(len, self.files.values()))

    @property
    def mutual_pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of files that call each other."""
        return sorted({(a, b) for a, b in self.arcs if a < b and (b, a) in self.arcs})


def walk(kind: str, folder: Path) -> Walk:
    """Trace the second batch through a script of `SCRIPTS`."""
    for stream in ("s", "r"):
        (folder / stream).mkdir()
        _write_batch(folder / stream, 0)
    mill = open_mill(home=folder / "home", pool=inline_pool(), folder=folder)
    mill.execute(SCRIPTS[kind].format(folder=folder))
    mill.open()
    try:
        _turn_until_rows(mill, 0)
        for stream in ("s", "r"):
            _write_batch(folder / stream, 1)
        return _traced(mill)
    finally:
        mill.close()


def _write_batch(folder: Path, number: int) -> None:
    first = START_US + number * ROWS * STEP_US
    times = pa.array([first + row * STEP_US for row in range(ROWS)], pa.timestamp("us"))
    table = pa.table({"k": [row % 7 for row in range(ROWS)], "v": list(range(ROWS)), "ts": times})
    hidden = folder / f".{number}"
    pq.write_table(table, hidden)
    hidden.rename(folder / f"{number}.parquet")


def _traced(mill: Mill) -> Walk:
    found = Walk()

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(SOURCE):
            return
        file, function = file.removeprefix(SOURCE), frame.f_code.co_qualname
        found.calls += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(SOURCE):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != SOURCE + file:
            found.arcs.add((caller.f_code.co_filename.removeprefix(SOURCE), file))
        functions = found.files.setdefault(file, [])
        if function not in functions:
            functions.append(function)

    before = _result_rows(mill)
    sys.setprofile(note)
    try:
        _turn_until_rows(mill, before)
    finally:
        sys.setprofile(None)
    found.rows = _result_rows(mill) - before
    return found


def _turn_until_rows(mill: Mill, before: int) -> None:
    """Run turns until there are new results. Files are listed at intervals, so some turns do nothing."""
    deadline = time.monotonic() + LIMIT_S
    while _result_rows(mill) == before:
        assert time.monotonic() < deadline, "the batch gave no result"
        turn(mill)


def _result_rows(mill: Mill) -> int:
    return sum(len(query.timed_rows()) for query in mill.queries.values())


def main() -> None:
    """Print the walk that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=SCRIPTS)
    parser.add_argument("--list", action="store_true", help="print each file with its functions")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = walk(arguments.kind, Path(folder))
    print(f"{len(found.files)} files, {found.functions} functions, {found.calls} calls, {found.rows} rows")
    print(f"{len(found.mutual_pairs)} pairs of files call each other")
    if arguments.list:
        for first, second in found.mutual_pairs:
            print(f"  {first} <-> {second}")
        for file, functions in found.files.items():
            print(f"  {file}: {', '.join(functions)}")


if __name__ == "__main__":
    main()
