"""Panes in one phase and in two (docs/windows.md, "In two phases"): what each costs, and what is chosen.

A mill reads Parquet files to the end, stores rows, and then runs its units. In one phase these make panes of
rows; in two, the tasks that read have made entries of them already. Both ways are told to do so, whether it
pays or not, and take turns, in one session, on the same files; the first rounds warm up and do not count.
Then the planner is asked what it would have chosen after what it has counted.

Events come 10 000 to the second, windows are RANGE 60 SECONDS SLIDE 1 SECOND. Processor time is that of the
driver, the JVM and Python workers; figures are medians over rounds. Reading and starting a streaming query
are the larger part of both ways: figures of units alone are given beside those of the whole.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from os import getloadavg
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from slicemill.bench.benchmark import Benchmark
from slicemill.bench.events import EVENTS_PER_S, KEYS, SCHEMA, write_events
from slicemill.bench.process_tree import Usage, measured
from slicemill.engine.mill import Mill, wall_clock_us
from slicemill.engine.session import local_session
from slicemill.ingest.needs import need_of
from slicemill.ingest.spark_groups import Reader
from slicemill.lab.claims import Claim, at_most
from slicemill.lab.experiment import Result, Scale
from slicemill.plan.build import build_graph
from slicemill.plan.early_cost import Choice, choose
from slicemill.plan.optimize import optimize, share

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS = ("one phase", "two phases")
REGRET = 1.1  # what is chosen may cost so much more than what is not: less cannot be told from noise here
_WINDOW = "[RANGE 60 SECONDS SLIDE 1 SECOND]"


@dataclass(frozen=True, slots=True)
class Case:
    """Queries over one stream, by key or not; each has a function and perhaps a condition."""

    what: str
    keyed: bool
    selects: tuple[tuple[str, str], ...]

    def script(self, folder: Path, files_per_batch: int) -> str:
        options = f"path '{folder}', maxFilesPerTrigger {files_per_batch}"
        statements = [f"CREATE STREAM event ({SCHEMA}) ORDER BY ts USING parquet OPTIONS ({options});"]
        key, by = ("k, ", " GROUP BY k") if self.keyed else ("", "")
        for number, (call, condition) in enumerate(self.selects):
            statements.append(
                f"CREATE QUERY q{number} AS SELECT {key}{call} AS x, window_end() AS e "
                f"FROM event {_WINDOW}{condition}{by};"
            )
        return "\n".join(statements)


_MEAN = (("avg(v)", ""),)
_FILTERED = tuple(("avg(v)", f" WHERE v >= {1_000 * n}") for n in range(8))
CASES = (
    Case("no keys, a mean", False, _MEAN),
    Case("no keys, a deviation of doubles", False, (("stddev(CAST(v AS double) / 7)", ""),)),
    Case("no keys, 8 means with filters of their own", False, _FILTERED),
    Case(f"{KEYS} keys, a mean (10 rows to an entry)", True, _MEAN),
    Case(f"{KEYS} keys, 8 means with filters of their own (2 rows to an entry)", True, _FILTERED),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """An even number of rounds: each way comes first as often as the other."""

    rows_per_file: int
    files: int
    files_per_batch: int
    warm_rounds: int
    rounds: int
    cases: tuple[Case, ...]


SIZES: Mapping[Scale, Sizes] = {
    "small": Sizes(100_000, 5, 5, 1, 4, (CASES[0], CASES[3])),
    "full": Sizes(100_000, 10, 10, 1, 6, CASES),
}


@dataclass(frozen=True, slots=True)
class Run:
    """What one way took in one round, what came of it, and what the planner makes of what was counted."""

    ingest: Usage
    units: Usage
    results: tuple[pa.Table, ...]
    choice: Choice

    @property
    def whole(self) -> Usage:
        return self.ingest + self.units


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    claims: list[Claim] = []
    figures: dict[str, Any] = {
        "how": f"{sizes.files * sizes.rows_per_file} rows, {sizes.files_per_batch} files a batch, "
        f"{EVENTS_PER_S} events a second; medians of {sizes.rounds} rounds after {sizes.warm_rounds}",
    }
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name, local_session() as spark:
        folder = Path(name)
        write_events(folder / "events", sizes.files, sizes.rows_per_file)
        for number, case in enumerate(sizes.cases):
            rounds = [
                _round(spark, case, folder, f"{number}-{turn}", sizes, reverse=turn % 2 == 1)
                for turn in range(sizes.warm_rounds + sizes.rounds)
            ]
            found = rounds[sizes.warm_rounds :]
            claims += _claims(case, found)
            figures[case.what] = _figures(found)
    figures["load of the machine, 1 min"] = round(getloadavg()[0], 1)
    return Result(tuple(claims), figures)


def _round(
    spark: SparkSession, case: Case, folder: Path, name: str, sizes: Sizes, reverse: bool
) -> dict[str, Run]:
    """Both ways, the first one first or last; they must give the same results."""
    script = case.script(folder / "events", sizes.files_per_batch)
    ways = reversed(WAYS) if reverse else WAYS
    made = {way: run_way(spark, script, folder / f"{name}-{way}", way == WAYS[1]) for way in ways}
    same = all(a.equals(b) for a, b in zip(*(made[way].results for way in WAYS), strict=True))
    assert same, "results do not depend on the phases"
    return made


def run_way(spark: SparkSession, script: str, home: Path, early: bool) -> Run:
    """Read all files, run the units, and take the results in order."""
    with Mill(spark, home) as mill:
        told = Choice(early, "as the benchmark wants it")
        mill.early_panes.choose = lambda *_: told
        mill.execute(script)
        mill.open()
        graph = share(optimize(build_graph(mill.catalog)), mill.catalog)
        needs = {"event": need_of("event", graph)}
        reader = Reader(spark, mill.home.sources, Path(), wall_clock_us, lambda: None)
        with measured() as ingest:
            reader.read_to_the_end(mill.intakes, needs)
        with measured() as units:
            mill.dispatcher.run_all()
        (unit,) = mill.dispatcher.units.values()
        assert unit.early is not None
        keyed = bool(unit.early[1].keys)
        choice = choose(unit.statistics.panes, keyed, unit.plan.buckets, mill.early_panes.cores)
        tables = [query.to_arrow() for query in mill.queries.values()]
        return Run(ingest, units, tuple(_in_order(table) for table in tables), choice)


def _in_order(table: pa.Table) -> pa.Table:
    keys = [(name, "ascending") for name in table.column_names if name in ("e", "k")]
    return table.sort_by(keys).combine_chunks()


def _claims(case: Case, rounds: list[dict[str, Run]]) -> list[Claim]:
    choice = rounds[-1][WAYS[0]].choice
    chosen, other = (WAYS[1], WAYS[0]) if choice.early else WAYS
    return [
        at_most(
            f"{case.what}: {what} of {chosen}, which is chosen / of {other}",
            _median(rounds, chosen, figure) / _median(rounds, other, figure),
            REGRET,
            choice.why,
        )
        for what, figure in (("processor time", "cpu_s"), ("wall time", "wall_s"))
    ]


def _median(rounds: list[dict[str, Run]], way: str, figure: str, part: str = "whole") -> float:
    return float(median(getattr(getattr(made[way], part), figure) for made in rounds))


def _figures(rounds: list[dict[str, Run]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        way: {
            f"{part}, {figure}": round(_median(rounds, way, figure, part), 3)
            for part in ("whole", "ingest", "units")
            for figure in ("cpu_s", "wall_s")
        }
        for way in WAYS
    }
    for name in found[WAYS[0]]:
        found[f"one / two: {name}"] = round(found[WAYS[0]][name] / found[WAYS[1]][name], 2)
    return {
        **found,
        "results": rounds[-1][WAYS[0]].results[0].num_rows,
        "chosen": rounds[-1][WAYS[0]].choice.why,
    }


BENCHMARK = Benchmark("Panes of windows in one phase, and in two: tasks that read make entries first", run)
