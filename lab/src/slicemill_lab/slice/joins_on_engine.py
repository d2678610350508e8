"""Three queries over two streams on the engine: sliced, isolated, pulled up, pushed down.

The queries of slice-E8 and slice-E9 as ESL scripts: sharing a chain of slices, each with its own join, with
selections pulled up above one join, and with the stream split and selections pushed down. Streams arrive in
batches of three seconds. After each batch the engine runs until no unit is ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa

from slicemill.operators.join.slices.cuts import mem_opt, pull_up, push_down, separate_joins
from slicemill.operators.join.slices.workload import JoinWorkload, member
from slicemill.runtime.state_view import slices_of
from slicemill_lab.experiment import Scale
from slicemill_lab.on_engine import MovedClock, fed_mill
from slicemill_lab.slice.joins import LONGEST_S, RUN_WINDOWS, WINDOWS_S

WAYS = ("state-slice", "isolated", "pull-up", "push-down")
RIVALS = WAYS[1:]
RATE = 2_000
ARRIVED = round(2 * RATE * RUN_WINDOWS * LONGEST_S)
BATCH_S = 3.0
VALUES = 1_000
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class SparkSetting:
    """Windows, selectivity of the selection of Q2 and Q3 on A, and number of keys."""

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
class JoinsOnEngine:
    """Measurements of a run.

    Rows and bytes of state are taken at the end, when all windows are full. `routed` counts rows out of
    operators, to be routed on or delivered. `results` has the number and a checksum of each query's results.
    """

    rows: int = 0
    bytes: int = 0
    routed: int = 0
    cpu_s: float = 0.0
    results: dict[str, tuple[int, int]] = field(default_factory=dict)


@lru_cache(maxsize=100)
def on_engine(setting: SparkSetting, way: str, seed: int) -> JoinsOnEngine:
    """Run the queries with one of the methods."""
    clock = MovedClock()
    found = JoinsOnEngine()
    with fed_mill(script(setting, way), clock) as mill:
        for number, tables in enumerate(_batches(setting, seed)):
            clock.now = round((number + 1) * BATCH_S * _US)
            for name, table in tables.items():
                mill.feed(name, table)
            mill.dispatcher.run_all()
        mill.dispatcher.checkpoint_all()
        held = slices_of(mill.home)
        found.rows, found.bytes = sum(one.rows for one in held), sum(one.bytes for one in held)
        for unit in mill.dispatcher.tasks.values():
            found.cpu_s += unit.statistics.cpu_s
            found.routed += sum(unit.statistics.rows_by_node.values())
        for query in ("q1", "q2", "q3"):
            results = mill.queries[query].to_arrow()
            found.results[query] = results.num_rows, _sum(results)
    return found


def _sum(results: pa.Table) -> int:
    """Return a checksum of the results."""
    mixed = np.zeros(results.num_rows, np.uint64)
    for name in ("k", "v", "w"):
        mixed = mixed * np.uint64(1_000_003) + results.column(name).to_numpy().astype(np.uint64)
    return int(mixed.sum(dtype=np.uint64)) % 2**53


def modelled(setting: SparkSetting, way: str) -> float:
    first, second, third = WINDOWS_S[setting.windows]
    members = (
        member("q1", first),
        member("q2", second, "hot", setting.selectivity),
        member("q3", third, "hot", setting.selectivity),
    )
    workload = JoinWorkload(members, (RATE, RATE), 1 / setting.keys)
    plans = {"isolated": separate_joins, "pull-up": pull_up, "push-down": push_down}
    return plans[way](workload).memory if way in plans else mem_opt(workload).expected.memory


# -- the four ways, in ESL ---------------------------------------------------------------------------------

# Joins on different keys share nothing. The keys have equal values here, so the results are equal.
_STREAMS = "".join(
    f"CREATE STREAM {stream} (k bigint, k2 bigint, k3 bigint, v bigint, ts timestamp) ORDER BY ts;"
    for stream in "ab"
)
_PAIR = "a.k AS k, a.v AS v, b.v AS w, a.ts AS ta, b.ts AS tb"


def script(setting: SparkSetting, way: str) -> str:
    """Return the script of queries q1, q2 and q3 for one of the methods."""
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


def _batches(setting: SparkSetting, seed: int) -> Iterator[dict[str, pa.Table]]:
    rows = round(RATE * BATCH_S)
    for number in range(round(RUN_WINDOWS * LONGEST_S / BATCH_S)):
        tables = {}
        for place, stream in enumerate("ab"):
            chance = np.random.default_rng((seed, place, number))
            times = np.sort(chance.integers(0, round(BATCH_S * _US), rows)) + round(number * BATCH_S * _US)
            keys = chance.integers(0, setting.keys, rows)
            tables[stream] = pa.table(
                {
                    "k": keys,
                    "k2": keys,
                    "k3": keys,
                    "v": chance.integers(0, VALUES, rows),
                    "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
                }
            )
        yield tables
