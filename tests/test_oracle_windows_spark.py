"""Built-in aggregates over windows against Spark's own batch window functions, over the finished input."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from slicemill.rows import Timed
from test_oracle_windows import CALLS, FRAMES, SECOND, by_units, like

# Where Spark has other words for it, or none in a window.
SPARK = {
    "count(DISTINCT v)": "size(collect_set(v) OVER {w})",
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


def by_spark(spark: SparkSession, tuples: list[Timed], frame: str) -> list[tuple[Any, ...]]:
    bounds = frame.replace("3 SECONDS", str(3 * SECOND)).replace(" PRECEDING", "")
    unit, extent = bounds.split(" ", 1)
    window = f"(PARTITION BY k ORDER BY ts {unit} BETWEEN {extent} PRECEDING AND CURRENT ROW)"
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
def test_windows_give_what_sparks_batch_functions_give(spark: SparkSession, frame: str) -> None:
    chosen = random.Random(frame)
    ts, tuples = 0, list[Timed]()
    for number in range(80):
        ts += chosen.randint(1, 2 * SECOND)
        key, value = chosen.choice(["a", "b", None]), chosen.choice([None, *(n / 4 for n in range(-8, 9))])
        row = (number, key, value, chosen.choice([None, -2, 0, 3]), chosen.choice([None, "", "x", "yy"]))
        tuples.append(Timed(ts, row))
    kept = [0, *(n + 1 for n, call in enumerate(CALLS) if SPARK.get(call, "same") is not None)]
    ours = [tuple(row[place] for place in kept) for row in by_units(tuples, frame, border=33)]
    assert ours == [like(row) for row in by_spark(spark, tuples, frame)]
