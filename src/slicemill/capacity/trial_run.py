"""Measurement of scheduling policies on Spark: simulated arrivals are replayed in real time.

Each policy runs twice over all arrivals; such a run is called a turn. The policies take turns in one engine,
forwards and then backwards, so that other load on the machine affects all of them equally.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from slicemill.api.mill import Mill
from slicemill.capacity.trial import Progress, TrialSamples, TrialStream, open_trial_mill, stop_if_failed
from slicemill.errors import SlicemillError
from slicemill.metrics.quality_of_service import QueryStatistics, StaleTime, Summary
from slicemill.scheduling.capacity import Costs
from slicemill.scheduling.rehearsal import Outcome, Poll, QueryOutcome
from slicemill.sql.errors import SourceText
from slicemill.time import SECOND_US, wall_clock_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# number of polls before the measurement; they fill caches, and the driver learns the costs of tasks
_UNCOUNTED = 4
_PATIENCE_S = 300.0
# Advance of event time before each turn
#
# First, event time advances by an hour, and a few rows that do not count close the windows of the previous
# turn. Then it advances by two minutes, which is longer than processing these rows takes. So no row of the
# turn is late, even if a stream has SKEW and its watermark has followed the clock.
_LEAP_US, _SMALL_LEAP_US = 3600 * SECOND_US, 120 * SECOND_US
_FEW_ROWS = 10


def try_policies(
    spark: SparkSession,
    source: SourceText,
    policies: Sequence[str],
    arrivals: Sequence[Poll],
    costs: Costs,
    samples: TrialSamples,
    progress: Progress,
) -> dict[str, Outcome]:
    """Replay the arrivals twice under each policy, until all rows are processed.

    Slowdown is relative to the ideal times of `costs`, as in the simulation. The costs that the dispatcher
    learns differ from run to run.
    """
    found: dict[str, Outcome] = {}
    with open_trial_mill(spark, source, wall_clock_us) as mill:
        streams = samples.of(mill)
        progress("warming up", 0.0)
        now_us = _warm_up(mill, streams, arrivals)
        for policy in (*policies, *reversed(policies)):
            now_us += _LEAP_US
            for name, stream in streams.items():
                mill.feed(name, stream.rows(_FEW_ROWS, now_us))
            now_us += _SMALL_LEAP_US
            # The tables are built before the turn, so that feeding them takes little time.
            tables = [
                streams[poll.stream].rows(poll.rows, now_us + int(poll.at * SECOND_US)) for poll in arrivals
            ]
            mill.dispatcher.run_all()
            mill.dispatcher.chooser.set_policy(policy)
            outcome = _run_arrivals(mill, arrivals, tables, costs, progress)
            if policy in found:
                found[policy].merge(outcome)
            else:
                found[policy] = outcome
    return found


def _run_arrivals(
    mill: Mill, arrivals: Sequence[Poll], tables: Sequence[pa.Table], costs: Costs, progress: Progress
) -> Outcome:
    for query in mill.queries.values():
        metrics = query.measured()
        metrics.figures, metrics.stale = QueryStatistics(), StaleTime()
    waiting: list[dict[str, int]] = []
    began = time.monotonic()
    mill.dispatcher.start()
    try:
        for poll, table in zip(arrivals, tables, strict=True):
            time.sleep(max(0.0, began + poll.at - time.monotonic()))
            mill.dispatcher.check()
            progress(f"running under {mill.dispatcher.chooser.policy.name}", poll.at / arrivals[-1].at)
            mill.feed(poll.stream, table)
            waiting.append(_rows_waiting(mill))
        _drain(mill)
        lasted_s = time.monotonic() - began
    finally:
        mill.dispatcher.stop()
    stop_if_failed(mill)
    return _outcome(mill, costs, arrivals[-1].at, lasted_s, waiting)


def _warm_up(mill: Mill, streams: Mapping[str, TrialStream], arrivals: Sequence[Poll]) -> int:
    """Run every task on polls of several sizes. Return the last event time."""
    largest = {name: max((p.rows for p in arrivals if p.stream == name), default=0) for name in streams}
    now_us = wall_clock_us()
    for number in range(_UNCOUNTED):
        now_us += SECOND_US
        for name, stream in streams.items():
            rows = largest[name] // (1 + number % 3)
            if rows:
                mill.feed(name, stream.rows(rows, now_us))
        mill.dispatcher.run_all()
    return now_us


def _rows_waiting(mill: Mill) -> dict[str, int]:
    return {name: sum(epoch.rows for epoch in task.pending()) for name, task in mill.dispatcher.tasks.items()}


def _drain(mill: Mill) -> None:
    ends = time.monotonic() + _PATIENCE_S
    while _is_busy(mill):
        mill.dispatcher.check()
        if time.monotonic() > ends:
            raise SlicemillError(
                f"rows were still pending {_PATIENCE_S:.0f} s after the last row arrived; use a lower --rate"
            )
        time.sleep(0.02)
    with mill.dispatcher.paused():
        pass  # this waits until the last run has delivered its results


def _is_busy(mill: Mill) -> bool:
    """Return True if rows wait for admission or for a run of a task."""
    return any(stream.has_handed for stream in mill.running.streams.values()) or any(
        task.pending() for task in mill.dispatcher.tasks.values()
    )


def _outcome(
    mill: Mill, costs: Costs, loaded_s: float, lasted_s: float, waiting: Sequence[Mapping[str, int]]
) -> Outcome:
    cores = mill._cluster.spark.sparkContext.defaultParallelism
    outcome = Outcome({}, loaded_s, lasted_s)
    totals = [sum(rows.values()) for rows in waiting]
    outcome.mean_waiting, outcome.most_waiting = sum(totals) / len(totals), max(totals)
    for task, output in costs.queries():
        metrics = mill.queries[output.log].measured()
        response = metrics.figures.response
        waited = [rows[task.id] for rows in waiting]
        outcome.queries[output.log] = QueryOutcome(
            QueryStatistics(response, _divide_summary(response, costs.ideal_s(output.log, cores))),
            metrics.stale,
            min(1.0, metrics.stale.staleness(lasted_s)),
            sum(waited) / len(waited),
            max(waited),
        )
    return outcome


def _divide_summary(values: Summary, divisor: float) -> Summary:
    return Summary(
        values.count, values.total / divisor, values.squares / divisor**2, values.largest / divisor
    )
