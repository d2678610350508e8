"""Ideal time of a result: the time of all rows that form it, through all tasks on their way (P22)."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.binder import bind
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.scheduling.statistics import BatchCost, LogOrigin, MadeOf, TaskStatistics, ideal_time, made_of
from slicemill.time import wall_clock_us
from slicemill_lab.charts import composites
from slicemill_lab.charts.composites import Join, Joined, JoinSide
from slicemill_lab.charts.segments import SegmentFigures
from support.engine import fed_mill, feed_rows, finish, inline_pool

STREAMS = """
CREATE STREAM a (k int, x int, ts timestamp) ORDER BY ts;
CREATE STREAM b (k int, y int, ts timestamp) ORDER BY ts;
CREATE STREAM c (k int, z int, ts timestamp) ORDER BY ts;
"""
THREE = """
CREATE QUERY three AS SELECT a.k, x, y, z
  FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS], c [RANGE 10 SECONDS] WHERE a.k = b.k AND b.k = c.k;
"""
OTHERS = """
CREATE STREAM ab AS SELECT a.k AS k, x, y FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k;
CREATE QUERY stepped AS SELECT ab.k, x, y, z FROM ab [RANGE 10 SECONDS], c [RANGE 10 SECONDS]
  WHERE ab.k = c.k;
CREATE STREAM u AS SELECT k FROM ab UNION ALL SELECT k FROM c;
CREATE QUERY united AS SELECT k FROM u WHERE k > 3;
CREATE QUERY alone AS SELECT k FROM a WHERE k > 3;
"""


def writers(script: str) -> dict[str, LogOrigin]:
    """Return the task that writes each log of a script; each task has another cost of runs."""
    catalog = bind(script).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    found = {}
    for number, task in enumerate(split_into_tasks(graph)):
        known = TaskStatistics(cost=BatchCost(10.0**number, 0.01 * 10.0**number))
        inputs: dict[str, MadeOf] = {graph.streams.get(log, log): log for log in task.inputs}
        found |= {log: LogOrigin(made_of(root, graph, inputs), known) for root, log in task.outputs}
    return found


def test_a_result_of_a_three_way_join_counts_three_rows() -> None:
    found = writers(STREAMS + THREE + OTHERS)
    cost = found["three"].statistics.cost
    assert ideal_time("three", found) == pytest.approx(
        (cost.overhead + 3 * cost.per_row, cost.overhead + cost.per_row)
    )
    # The rule for trees gives the same: rows cost before their first join, the overhead of a run after it.
    row = JoinSide(1, cost.per_row, cost.per_row, 1)
    free = Join(0, 1, 1)
    pair = Joined(row, row, free, SegmentFigures(1, 0, 0))
    tree = Joined(pair, row, free, SegmentFigures(1, cost.overhead, cost.overhead))
    assert ideal_time("three", found).whole_s == pytest.approx(composites.ideal_time(tree))


def test_the_ideal_time_includes_the_tasks_upstream() -> None:
    found = writers(STREAMS + THREE + OTHERS)
    of = {log: found[log].statistics.cost for log in ("ab", "stepped", "u", "united", "alone")}
    pair = of["ab"].overhead + 2 * of["ab"].per_row
    assert ideal_time("stepped", found).whole_s == pytest.approx(
        pair + of["stepped"].overhead + 2 * of["stepped"].per_row
    )
    assert ideal_time("stepped", found).last_s == pytest.approx(of["ab"].of(1) + of["stepped"].of(1))
    # A row of a union takes one input; the longest is the input of pairs.
    assert ideal_time("united", found).whole_s == pytest.approx(pair + of["u"].of(1) + of["united"].of(1))
    assert ideal_time("alone", found) == pytest.approx((of["alone"].of(1),) * 2)
    assert ideal_time("a", found) == (0, 0)


def test_a_running_three_way_join_has_the_ideal_time_of_three_rows(tmp_path: Path) -> None:
    with fed_mill(tmp_path, wall_clock_us, inline_pool()) as mill:
        mill.execute(STREAMS + THREE)
        mill.open()
        for number in range(3):
            for name in ("a", "b", "c"):
                feed_rows(mill, name, [(1, number, 1_000_000 * number)])
            mill.dispatcher.run_all()
        finish(mill)
        metrics = mill.queries["three"].metrics()
        assert metrics.rows == 27
        cost = mill.dispatcher.running.writers["three"].statistics.cost
        assert metrics.ideal_s == pytest.approx(cost.overhead + 3 * cost.per_row)
        # Slowdowns of the last run use the present statistics; those of earlier runs used earlier statistics.
        assert (metrics.warm_up.count, metrics.figures.slowdown.count) == (1, 26)
        buckets = mill.metrics().plain()["buckets"]
        assert sum(bucket["response_s"]["count"] for bucket in buckets) == 26
        assert any(bucket["memory"]["most_rows_waiting"] == 3 for bucket in buckets)
        assert all(bucket["staleness"] + bucket["freshness"] == pytest.approx(1) for bucket in buckets)
        assert any(bucket["staleness"] > 0 for bucket in buckets)
