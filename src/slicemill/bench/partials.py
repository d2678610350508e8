"""Would it pay to make partial results of panes before tuples are stored? (docs/windows.md, "In one pass")

A mean over RANGE 60 s SLIDE 1 s needs of the tuples of a key and a second only their count and sum. Rows are
read and stored, and a unit puts them into panes; here that is compared with grouping in Catalyst, and with
grouping in the tasks that read, both before anything is stored (`partial_ways`). With 1 000 keys and 10 000
events a second ten rows become one, without keys ten thousand: there, partials by the reading tasks are the
first of two phases.

Processor seconds of the driver, the JVM and Python workers, in one session, of the last of several rounds. A
way with partials is charged for making and storing them, and for what a unit has to do with as many rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import getloadavg
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from slicemill.bench.benchmark import Benchmark
from slicemill.bench.partial_ways import Folder, Rows, by_catalyst, by_tasks
from slicemill.bench.process_tree import Usage, measured
from slicemill.lab.claims import Claim, at_most
from slicemill.lab.experiment import Result, Scale
from slicemill.runtime.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 1_000
WORTH_IT = 1.5  # times less processor time, for what it would add to late tuples, restarts and new queries
_SECOND = 1_000_000
_STEP_US = 100  # 10 000 events a second
_FIRST_US = 1_700_000_000 * _SECOND


@dataclass(frozen=True, slots=True)
class Sizes:
    rows_per_file: int
    files: int
    files_per_batch: int
    forms: tuple[str, ...]
    rounds: int


SIZES: Mapping[Scale, Sizes] = {
    "small": Sizes(100_000, 5, 5, ("parquet",), 4),
    "full": Sizes(100_000, 20, 5, ("parquet", "orc", "csv", "json"), 4),
}


@dataclass(frozen=True, slots=True)
class Case:
    """Events in files of one form, and the same with one row for each key and second."""

    form: str
    keyed: bool
    events: Folder
    reduced: Folder
    rows: int

    @property
    def what(self) -> str:
        return f"{self.form}, {f'{KEYS} keys' if self.keyed else 'no keys'}"


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor seconds of the parts; with partials, `units_after` follows."""

    rows: int
    ingest: float
    units: float
    catalyst: float
    tasks: float
    units_after: float

    @property
    def today(self) -> float:
        return self.ingest + self.units

    @property
    def with_partials(self) -> dict[str, float]:
        return {"Catalyst": self.catalyst + self.units_after, "reading tasks": self.tasks + self.units_after}

    def figures(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "cpu_s": round(self.today, 2),
            "of which ingest": round(self.ingest, 2),
            "of which units": round(self.units, 2),
            "grouped by Catalyst, cpu_s": round(self.with_partials["Catalyst"], 2),
            "grouped by the reading tasks, cpu_s": round(self.with_partials["reading tasks"], 2),
            "of both, units with partials": round(self.units_after, 2),
        }


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    claims: list[Claim] = []
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name, local_session() as spark:
        folder = Path(name)
        cases = [
            write_case(folder / f"{form}-{keyed}", form, keyed, sizes)
            for form in sizes.forms
            for keyed in (True, False)
        ]
        for number in range(sizes.rounds):
            costs = {case: measure(spark, case, folder / case.what / str(number)) for case in cases}
    for case, cost in costs.items():
        best = min(cost.with_partials, key=cost.with_partials.__getitem__)
        figures[case.what] = cost.figures()
        claims.append(
            at_most(
                f"{case.what}: CPU of rows in the log / of partials by the better of two ways",
                cost.today / cost.with_partials[best],
                WORTH_IT,
                f"better: {best}; partials would be made if they saved more than this",
            )
        )
    figures["how"] = "CPU of driver, JVM and Python workers, the last of the rounds, one session"
    figures["load of the machine, 1 min"] = round(getloadavg()[0], 1)
    return Result(tuple(claims), figures)


def measure(spark: SparkSession, case: Case, home: Path) -> Costs:
    rows = Rows(spark, case.events, home / "rows")
    ingest, units = _taken(rows.ingest), _taken(rows.units)
    reduced = Rows(spark, case.reduced, home / "reduced")
    reduced.ingest()
    units_after = _taken(reduced.units)
    assert rows.results == reduced.results, "partials lead to as many results"
    for side in (rows, reduced):
        side.close()
    catalyst = _taken(lambda: by_catalyst(spark, case.events, home / "catalyst"))
    tasks = _taken(lambda: by_tasks(spark, case.events, home / "tasks"))
    return Costs(case.rows, *(used.cpu_s for used in (ingest, units, catalyst, tasks, units_after)))


def _taken(work: Callable[[], object]) -> Usage:
    with measured() as usage:
        work()
    return usage


def write_case(folder: Path, form: str, keyed: bool, sizes: Sizes) -> Case:
    random = np.random.default_rng(1)
    events, reduced = (
        Folder(folder / name, form_, keyed, sizes.files_per_batch)
        for name, form_ in (("events", form), ("reduced", "parquet"))
    )
    for made in (events, reduced):
        made.path.mkdir(parents=True)
    for number in range(sizes.files):
        places = np.arange(number * sizes.rows_per_file, (number + 1) * sizes.rows_per_file)
        ts = _FIRST_US + places * _STEP_US
        k, v = (random.integers(0, end, len(places)) for end in (KEYS, 10_000))
        table = pa.table({"k": k, "v": v, "ts": pa.array(ts, pa.timestamp("us", tz="UTC"))})
        cells = (places * _STEP_US // _SECOND) * KEYS + (k if keyed else 0)
        firsts = np.sort(np.unique(cells, return_index=True)[1])
        _write(events.path / f"{number:05d}.{form}", form, table)
        _write(reduced.path / f"{number:05d}.parquet", "parquet", table.take(pa.array(firsts)))
    return Case(form, keyed, events, reduced, sizes.rows_per_file * sizes.files)


def _write(path: Path, form: str, table: pa.Table) -> None:
    if form == "parquet":
        pq.write_table(table, path)
    elif form == "orc":
        from pyarrow import orc

        orc.write_table(table, path)
    else:
        texts = pc.strftime(table.column("ts"), "%Y-%m-%d %H:%M:%S")
        spelled = table.set_column(2, "ts", texts)
        if form == "csv":
            pa.csv.write_csv(spelled, path, pa.csv.WriteOptions(include_header=False))
        else:
            spelled.to_pandas().to_json(path, orient="records", lines=True)


BENCHMARK = Benchmark("Partial results of panes made before tuples are stored, beside rows in the log", run)
