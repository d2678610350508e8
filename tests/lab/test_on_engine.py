"""Experiments on the engine give equal counts with workers on Spark and in this process."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from slicemill_lab import on_engine
from slicemill_lab.mill.engine.union import B, C, EngineRun, run_union
from slicemill_lab.mill.graphs import Rates
from support.engine import inline_pool

RATES = Rates(50, 2)


def both_ways() -> list[EngineRun]:
    run_union.cache_clear()
    return [run_union(B, RATES, 3, 0.6, 5), run_union(C, RATES, 3, 0.6)]


def test_counts_on_spark_equal_those_of_workers_in_this_process(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark  # the session that the experiments use
    on_spark = both_ways()
    monkeypatch.setattr(on_engine, "make_pool", lambda: inline_pool(1))
    assert both_ways() == on_spark
    assert on_spark[0].peak_rows > on_spark[1].peak_rows == 0
