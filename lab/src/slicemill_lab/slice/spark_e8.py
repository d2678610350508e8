"""slice-spark-E8: state and service rate of three queries on the vectorised engine, sliced and not (E8, E9).

The queries of slice-E8 and slice-E9 as ESL scripts: sharing a chain of slices, each with a join of its own,
with selections pulled up above one join, and with the stream split and selections pushed down. Streams come
in batches, and the tasks that Spark would run for them are run one after the other in this process: kernels,
results written and read, state. What Spark adds to a task is the same for all ways, and is measured by
`slicemill bench join`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from slicemill.engine.program import UnitPlan, UnitProgram
from slicemill.esl import bind
from slicemill.operators.join.inspection import Inspectable
from slicemill.operators.join.slices.baselines import isolated, pull_up, push_down
from slicemill.operators.join.slices.chain import mem_opt
from slicemill.operators.join.slices.members import member
from slicemill.operators.join.slices.workload import JoinWorkload
from slicemill.plan.build import build_graph
from slicemill.plan.optimize import optimize, share
from slicemill.plan.units import cut
from slicemill.storage.files import unique_name
from slicemill.storage.segments import SegmentWriter, read_extent
from slicemill_lab.claims import Claim, at_least, at_most, timed
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.joins import LONGEST_S, RUN_WINDOWS, WINDOWS_S, mean, more, saved

WAYS = ("state-slice", "isolated", "pull-up", "push-down")
RIVALS = WAYS[1:]
RATE = 2_000
BATCH_S = 3.0
VALUES = 1_000
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class SparkSetting:
    """Windows, the share of A that the selection of Q2 and Q3 lets through, and how many keys there are."""

    windows: str
    selectivity: float
    keys: int

    def __str__(self) -> str:
        return f"{self.windows}, Ss {self.selectivity:g}, {self.keys} keys"


SETTINGS: Mapping[Scale, tuple[SparkSetting, ...]] = {
    "small": (SparkSetting("uniform", 0.2, 20_000),),
    "full": tuple(
        SparkSetting(windows, selectivity, 10_000) for windows in WINDOWS_S for selectivity in (0.2, 0.5, 0.8)
    ),
}


@dataclass(slots=True)
class Measured:
    """Rows and bytes in state, batch by batch; processor seconds; a sum over each query's results."""

    rows: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    cpu_s: float = 0.0
    results: dict[str, tuple[int, int]] = field(default_factory=dict)


def run(seed: int, scale: Scale) -> Result:
    """State and service rate of each way in each setting."""
    found = {setting: {way: _measured(setting, way, seed) for way in WAYS} for setting in SETTINGS[scale]}
    arrived = 2 * RATE * RUN_WINDOWS * LONGEST_S
    figures = {
        str(setting): {
            way: {
                "rows in state": round(mean(one.rows)),
                "bytes in state": round(mean(one.bytes)),
                "rows per CPU second": round(arrived / one.cpu_s),
                "results": {query: count for query, (count, _) in sorted(one.results.items())},
                "rows in state, by the model": round(_modelled(setting, way)),
            }
            for way, one in ways.items()
        }
        for setting, ways in found.items()
    }
    return Result(_claims(found), {"settings": figures})


def plot(result: Result, path: Path) -> None:
    """Rows in state, way by way, over the settings."""
    settings = result.figures["settings"]
    numbers = list(range(1, len(settings) + 1))
    draw_curves(
        path,
        {way: curve(numbers, [[found[way]["rows in state"] for found in settings.values()]]) for way in WAYS},
        title="Also set at a time, slices hold the least",
        x_label="setting",
        y_label="rows in state",
    )


EXPERIMENT = Experiment(
    id="slice-spark-E8",
    title="Three queries on the vectorised engine: slices and other ways",
    run=run,
    plot=plot,
)


def _claims(found: Mapping[SparkSetting, Mapping[str, Measured]]) -> tuple[Claim, ...]:
    pairs = [(setting, way) for setting in found for way in RIVALS]
    ours = {setting: ways["state-slice"] for setting, ways in found.items()}
    rows = [saved(mean(ours[one].rows), mean(found[one][way].rows)) for one, way in pairs]
    bytes_ = [saved(mean(ours[one].bytes), mean(found[one][way].bytes)) for one, way in pairs]
    model = [saved(_modelled(one, "state-slice"), _modelled(one, way)) for one, way in pairs]
    faster = {way: [more(found[one][way].cpu_s, ours[one].cpu_s) for one in found] for way in RIVALS}
    wrong = sum(found[one][way].results != ours[one].results for one, way in pairs)
    return (
        at_most("settings and ways in which some query's results differ", wrong, 0),
        at_least(
            "rows in state: least saving against any way, %",
            min(rows),
            0,
            "Printed: always the lowest. Where a cut would free less than an eighth of the rows it is not "
            "made: with windows of 20 to 30 s and Ss 0.8, and state is that of pull-up.",
        ),
        at_least("bytes in state: least saving against any way, %", min(bytes_), 0.1),
        at_most(
            "rows saved, against the model: greatest difference, percentage points",
            max(abs(a - b) for a, b in zip(rows, model, strict=True)),
            8,
            "Rows go with their slice, an eighth of the longest window, and in batches of "
            f"{BATCH_S:g} s: all ways hold a little more than they need.",
        ),
        *(
            timed(
                at_least(f"rows per CPU second, ahead of {way}: mean over settings, %", mean(faster[way]), 0)
            )
            for way in RIVALS
        ),
    )


def _modelled(setting: SparkSetting, way: str) -> float:
    first, second, third = WINDOWS_S[setting.windows]
    members = (
        member("q1", first),
        member("q2", second, "hot", setting.selectivity),
        member("q3", third, "hot", setting.selectivity),
    )
    workload = JoinWorkload(members, (RATE, RATE), 1 / setting.keys)
    plans = {"isolated": isolated, "pull-up": pull_up, "push-down": push_down}
    return plans[way](workload).memory if way in plans else mem_opt(workload).expected.memory


# -- the four ways, in ESL ---------------------------------------------------------------------------------

# Joins on different keys share nothing. The keys are the same here, so the results are too.
_STREAMS = "".join(
    f"CREATE STREAM {stream} (k bigint, k2 bigint, k3 bigint, v bigint, ts timestamp) ORDER BY ts;"
    for stream in "ab"
)
_PAIR = "a.k AS k, a.v AS v, b.v AS w, a.ts AS ta, b.ts AS tb"


def script(setting: SparkSetting, way: str) -> str:
    """The queries q1, q2 and q3, run in one of the ways."""
    first, second, third = WINDOWS_S[setting.windows]
    limit = round(VALUES * setting.selectivity)
    hot, cold = f" AND a.v < {limit}", f" AND a.v >= {limit}"
    if way in ("state-slice", "isolated"):
        keys = ("k", "k", "k") if way == "state-slice" else ("k", "k2", "k3")
        windows = zip((first, second, third), keys, ("", hot, hot), strict=True)
        queries = [_join(f"QUERY q{n}", *one, "a.k, a.v, b.v AS w") for n, one in enumerate(windows, start=1)]
    elif way == "pull-up":
        queries = [
            _join("STREAM pairs", third, "k", "", _PAIR),
            f"CREATE QUERY q1 AS {_younger('pairs', first)};",
            f"CREATE QUERY q2 AS {_younger('pairs', second)} AND v < {limit};",
            f"CREATE QUERY q3 AS SELECT k, v, w FROM pairs WHERE v < {limit};",
        ]
    else:
        queries = [
            _join("STREAM cold", first, "k", cold, _PAIR),
            _join("STREAM hot", third, "k2", hot, _PAIR),
            f"CREATE QUERY q1 AS SELECT k, v, w FROM cold UNION ALL {_younger('hot', first)};",
            f"CREATE QUERY q2 AS {_younger('hot', second)};",
            "CREATE QUERY q3 AS SELECT k, v, w FROM hot;",
        ]
    return _STREAMS + "\n".join(queries)


def _join(what: str, window_s: float, key: str, where: str, columns: str) -> str:
    window = f"[RANGE {window_s:g} SECONDS]"
    return f"CREATE {what} AS SELECT {columns} FROM a {window}, b {window} WHERE a.{key} = b.{key}{where};"


def _younger(pairs: str, window_s: float) -> str:
    window = f"INTERVAL '{window_s:g}' SECOND"
    return f"SELECT k, v, w FROM {pairs} WHERE ta < tb + {window} AND tb < ta + {window}"


# -- running them ------------------------------------------------------------------------------------------


def _measured(setting: SparkSetting, way: str, seed: int) -> Measured:
    catalog = bind(script(setting, way)).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    programs = [UnitProgram(UnitPlan(unit, graph, catalog, {})) for unit in cut(graph)]
    measured = Measured()
    with tempfile.TemporaryDirectory(prefix="slicemill-lab-") as folder:
        for number, tables in enumerate(_batches(setting, seed)):
            until = round((number + 1) * BATCH_S * _US)
            _run(programs, tables, until, Path(folder), measured)
            if until >= LONGEST_S * _US:
                held = [
                    h
                    for p in programs
                    for s in p.states.values()
                    if isinstance(s, Inspectable)
                    for h in s.held()
                ]
                measured.rows.append(sum(one.rows for one in held))
                measured.bytes.append(sum(one.slice.table.nbytes for one in held if one.slice is not None))
    return measured


def _run(
    programs: list[UnitProgram], tables: dict[str, pa.Table], until: int, folder: Path, measured: Measured
) -> None:
    """One run of each unit, in the order of their logs."""
    complete = dict.fromkeys(tables, until)
    began = time.process_time()
    writer = SegmentWriter(folder, unique_name())
    for program in programs:
        wanted = program.plan.unit.inputs
        outcome = program.run({log: tables[log] for log in wanted}, {log: complete[log] for log in wanted})
        for log, table in outcome.tables.items():
            extent = writer.append(table, compress=True)
            tables[log], complete[log] = read_extent(folder, extent), outcome.watermarks[log]
    writer.release()
    measured.cpu_s += time.process_time() - began
    for query in ("q1", "q2", "q3"):
        count, total = measured.results.get(query, (0, 0))
        measured.results[query] = count + tables[query].num_rows, total + _sum(tables[query])
    for path in folder.iterdir():
        path.unlink()


def _sum(results: pa.Table) -> int:
    """A number that differs, most likely, if any result does."""
    mixed = results.column("_ts").to_numpy().astype(np.uint64)
    for name in ("k", "v", "w"):
        mixed = mixed * np.uint64(1_000_003) + results.column(name).to_numpy().astype(np.uint64)
    return int(mixed.sum(dtype=np.uint64)) % 2**53


def _batches(setting: SparkSetting, seed: int) -> Iterator[dict[str, pa.Table]]:
    rows = round(RATE * BATCH_S)
    for number in range(round(RUN_WINDOWS * LONGEST_S / BATCH_S)):
        tables = {}
        for place, stream in enumerate("ab"):
            chance = np.random.default_rng((seed, place, number))
            times = np.sort(chance.integers(0, round(BATCH_S * _US), rows)) + round(number * BATCH_S * _US)
            keys = chance.integers(0, setting.keys, rows)
            numbers = np.arange(number * rows, (number + 1) * rows)
            columns = {"_ts": times, "_seq": numbers, "_arr": times, "k": keys, "k2": keys, "k3": keys}
            columns["v"] = chance.integers(0, VALUES, rows)
            tables[stream] = pa.table({**columns, "ts": pa.array(times, pa.timestamp("us", tz="UTC"))})
        yield tables
