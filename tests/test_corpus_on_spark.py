"""The corpus on Spark: tuples enter the logs in the order of the case, units run between any two of them."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slicemill.engine.mill import Mill
from slicemill.engine.rows import to_table
from slicemill.esl.relation import RelationQuery
from slicemill.execution.operator import Timed
from slicemill.ingest.intake import Arrived, packed
from slicemill.storage.arrow_schema import ARRIVAL, TS
from support.corpus import Case, Event, Runnable, TimedRow, check_rows, parameters, prepare


class Clock:
    """The time of the case, in place of the wall clock."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def admit(mill: Mill, stream: str, batch: int, events: list[Event]) -> None:
    intake = mill.intakes[stream]
    rows = [Timed(0, event.row) for event in events if event.row is not None and event.ts_us is not None]
    table = to_table(rows, intake.stream.schema, [0] * len(rows)).drop_columns([TS, ARRIVAL])
    external = intake.late is not None
    chunk = intake.log.write(packed(table, intake.stream.time_column if external else None))
    intake.admit(batch, Arrived(chunks=[chunk] if rows else []))
    for event in events:
        if event.row is None and event.ts_us is not None:
            intake.promise_at_least(event.ts_us)


def run(runnable: Runnable, spark: SparkSession, home: Path, seed: int) -> dict[str, list[TimedRow]]:
    chooser = random.Random(seed)
    clock = Clock()

    def started() -> Mill:
        mill = Mill(spark, home, buckets=chooser.choice([1, 2, 5]), clock=clock)
        for name, rows in runnable.tables.items():
            mill.table(name, rows)
        mill.execute(runnable.case.esl)
        mill.open()
        return mill

    mill = started()
    moments = groupby(runnable.events, key=lambda event: (event.arrival_us, event.stream))
    for batch, ((clock.now, stream), events) in enumerate(moments):
        if stream in mill.intakes:
            admit(mill, stream, batch, list(events))
        if chooser.random() < 0.1:
            mill.dispatcher.run_some()
        if chooser.random() < 0.05:
            mill.close()
            mill = started()
    for intake in mill.intakes.values():
        intake.end()
    mill.dispatcher.run_all()
    results: dict[str, list[TimedRow]] = {}
    for name, query in mill.catalog.queries.items():
        if isinstance(query.query, RelationQuery):
            results[name] = [(None, row) for row in mill.ask(name)]
        else:
            assert mill.queries[query.name].error is None
            results[name] = [(timed.ts, timed.row) for timed in mill.queries[query.name].rows()]
    mill.close()
    return results


@pytest.mark.parametrize("case", parameters())
def test_a_case_gives_its_rows_whatever_the_runs_buckets_and_restarts(
    case: Case, spark: SparkSession, tmp_path: Path
) -> None:
    runnable = prepare(case)
    results = run(runnable, spark, tmp_path, seed=len(case.name))
    for query, expected in runnable.expected.items():
        # Between buckets, rows of the same time come in any order.
        check_rows(replace(expected, ordered=False), results[query.lower()], query)
