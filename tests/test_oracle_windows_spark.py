"""Built-in aggregates over windows against Spark's batch window functions, over the finished input."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from slicemill.binder import bind
from slicemill.types import Timed
from test_oracle_windows import CALLS, CATALOGS, FRAMES, SECOND, by_reference, by_tasks, like

# Calls with another name in Spark, or without a window form.
SPARK = {
    "count(DISTINCT v)": "size(collect_set(v) OVER {w})",
    "skewness(v)": "skewness(v) OVER {w}",
    "kurtosis(i)": "kurtosis(i) OVER {w}",
    "min_by(t, n)": "min_by(t, n) OVER {w}",
    "max_by(v, n)": "max_by(v, n) OVER {w}",
    "median(v)": "percentile(v, 0.5) OVER {w}",
    "percentile(v, 0.3)": "percentile(v, 0.3) OVER {w}",
    "quantile(i, 0.9)": "percentile(i, 0.9) OVER {w}",
    "collect_list(v)": "collect_list(v) OVER {w}",
    "array_agg(t)": "array_agg(t) OVER {w}",
    "listagg(t, '-')": None,
    "string_agg(t, '')": None,
    "priority_sample(v)": None,
    "approx_count(t)": None,
}


def bounds(frame: str) -> str:
    """Return a frame in Spark's syntax, over timestamps that are integers."""
    task, extent = frame.replace("3 SECONDS", str(3 * SECOND)).removesuffix(" PRECEDING").split(" ", 1)
    return f"{task} BETWEEN {extent} PRECEDING AND CURRENT ROW"


def by_spark(spark: SparkSession, tuples: list[Timed], frame: str) -> list[tuple[Any, ...]]:
    window = f"(PARTITION BY k ORDER BY ts {bounds(frame)})"
    words = [SPARK.get(call, theirs) for call, theirs in CALLS.items()]
    items = ", ".join(f"{word.format(w=window)} AS c{n}" for n, word in enumerate(words) if word is not None)
    frame_of_rows = spark.createDataFrame(
        [(t.ts, *t.row) for t in tuples], "ts BIGINT, n INT, k STRING, v DOUBLE, i INT, t STRING"
    )
    frame_of_rows.createOrReplaceTempView("finished_input")
    found = spark.sql(f"SELECT n, {items} FROM finished_input ORDER BY n").collect()
    spark.catalog.dropTempView("finished_input")
    return [tuple(row) for row in found]


@pytest.mark.parametrize("frame", FRAMES)
def test_window_aggregates_equal_batch_functions_of_spark(spark: SparkSession, frame: str) -> None:
    chosen = random.Random(frame)
    ts, tuples = 0, list[Timed]()
    for number in range(80):
        ts += chosen.randint(1, 2 * SECOND)
        key, value = chosen.choice(["a", "b", None]), chosen.choice([None, *(n / 4 for n in range(-8, 9))])
        row = (number, key, value, chosen.choice([None, -2, 0, 3]), chosen.choice([None, "", "x", "yy"]))
        tuples.append(Timed(ts, row))
    kept = [0, *(n + 1 for n, call in enumerate(CALLS) if SPARK.get(call, "same") is not None)]
    ours = [tuple(row[place] for place in kept) for row in by_tasks(tuples, CATALOGS[frame], border=33)]
    assert ours == [like(row) for row in by_spark(spark, tuples, frame)]


NUMERIC = (
    *("count", "sum", "avg", "mean", "min", "max", "variance", "var_samp", "var_pop", "stddev"),
    *("stddev_samp", "stddev_pop", "skewness", "kurtosis"),
)
VALUES: dict[str, list[Any]] = {
    "v": [None, 0.0, -0.0, 1.25, 1.25, -3.0, 7.5],
    "x": [None, 0.0, -0.0, 2.5, 2.5, math.nan, math.inf, -math.inf],
    "d": [None, *map(Decimal, ("0.00", "1.50", "1.50", "-2.25", "9.99"))],
    "i": [None, 0, 4, 4, -7],
}
DECLARED = "n int, v double, x double, d decimal(5, 2), i int"
ITEMS = ", ".join(f"{name}({column}){{over}} AS {name}_{column}" for name in NUMERIC for column in VALUES)


def on_both_engines(query: str, tuples: list[Timed]) -> list[tuple[Any, ...]]:
    """Return the rows of a query, on which the reference engine and the operators agree."""
    catalog = bind(f"CREATE STREAM S ({DECLARED}) ORDER BY current_time; CREATE QUERY q AS {query}").catalog
    found = by_reference(tuples, catalog)
    assert repr(by_tasks(tuples, catalog, border=len(tuples) // 3)) == repr(found)
    return found


def close(row: Sequence[Any]) -> list[Any]:
    return [pytest.approx(v, abs=1e-9, nan_ok=True) if isinstance(v, float) else v for v in row]


def drawn(spark: SparkSession, seed: str) -> list[Timed]:
    """Return tuples of each second, also as the view S; four of each sixteen have no values."""
    chosen = random.Random(seed)
    tuples = []
    for n in range(120):
        values = [None if n % 16 < 4 else chosen.choice(pool) for pool in VALUES.values()]
        tuples.append(Timed(n * SECOND, (n, *values)))
    rows = [(timed.ts, *timed.row) for timed in tuples]
    spark.createDataFrame(rows, f"ts BIGINT, {DECLARED}").createOrReplaceTempView("S")
    return tuples


@pytest.mark.parametrize("frame", FRAMES)
def test_window_aggregates_of_non_finite_numbers_equal_those_of_spark(
    spark: SparkSession, frame: str
) -> None:
    tuples = drawn(spark, frame)
    # A NaN at the start would be in all later unbounded windows.
    theirs = f" OVER (PARTITION BY n DIV 12 ORDER BY ts {bounds(frame)})"
    expected = spark.sql(f"SELECT n, {ITEMS.format(over=theirs)} FROM S ORDER BY n").collect()
    ours = f" OVER (PARTITION BY n DIV 12 {frame})"
    found = on_both_engines(f"SELECT n, {ITEMS.format(over=ours)} FROM S", tuples)
    assert found == [tuple(close(row)) for row in expected]


def test_group_aggregates_of_non_finite_numbers_equal_those_of_spark(spark: SparkSession) -> None:
    tuples, items = drawn(spark, "groups"), ITEMS.format(over="")
    slot = f"ts DIV {4 * SECOND}"
    expected = spark.sql(f"SELECT {items} FROM S GROUP BY {slot} ORDER BY {slot}").collect()
    found = on_both_engines(f"SELECT {items} FROM S [RANGE 4 SECONDS SLIDE 4 SECONDS]", tuples)
    assert found == [tuple(close(row)) for row in expected]
