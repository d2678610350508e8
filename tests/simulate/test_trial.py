"""Trials on Spark: measured costs, costs from a home directory, and policies compared on given arrivals."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from slicemill.binder import bind
from slicemill.capacity.trial import TrialSamples, costs_of_home, measure, open_trial_mill, read_sample
from slicemill.capacity.trial_run import try_policies
from slicemill.columns.arrow_schema import TS
from slicemill.errors import SlicemillError
from slicemill.scheduling.capacity import Output
from slicemill.scheduling.rehearsal import Traffic, polls, total_rows
from slicemill.sql.errors import SourceText
from slicemill.testing import open_mill

SCRIPT = SourceText(
    """\
CREATE STREAM bid (auction bigint, bidder bigint, price bigint, channel varchar, ts timestamp)
  ORDER BY ts SKEW 1 SECOND SOURCE 'nexmark://bid?rate=100&events=1000';
CREATE STREAM even AS SELECT auction, price, ts FROM bid WHERE auction % 2 = 0;
CREATE QUERY dear WITH (weight = 3, slo = 'p99 < 2 s') AS SELECT auction, price FROM bid WHERE price > 100000;
CREATE QUERY highest AS
  SELECT auction, max(price) OVER (PARTITION BY auction ROWS 9 PRECEDING) AS most FROM even;
""",
    "bids.esl",
)
RATES = {"bid": 200.0}


def ignored(what: str, done: float) -> None:
    assert what
    assert 0 <= done <= 1


def test_measured_costs_describe_the_tasks_of_the_trial(spark: SparkSession) -> None:
    samples = TrialSamples(RATES)
    costs = measure(spark, SCRIPT, 0.25, samples, ignored, counted=(1, 4, 16))
    assert costs.streams() == ["bid"]
    select, highest = costs.tasks
    assert {output.log: (output.is_query, output.weight, output.within_s) for output in select.outputs} == {
        "even": (False, 1.0, None),
        "dear": (True, 3.0, 2.0),
    }
    assert [output.log for output in highest.outputs] == ["highest"]
    assert highest.outputs[0].per_row == pytest.approx(1.0)
    assert highest.splits
    assert not select.splits
    assert costs.job_s > 0
    assert all(task.task_s > 0 and task.driver_s > 0 for task in costs.tasks)
    arrivals = polls({"bid": Traffic(200.0)}, 0.25, 1.0)
    tried = try_policies(spark, SCRIPT, ["hnr", "rr"], arrivals, costs, samples, ignored)
    assert list(tried) == ["hnr", "rr"]
    per_row = {output.log: output.per_row for task in costs.tasks for output in task.outputs}
    for outcome in tried.values():
        counts = {name: query.figures.response.count for name, query in outcome.queries.items()}
        # Each policy has two turns.
        assert counts["dear"] == pytest.approx(2 * per_row["dear"] * total_rows(arrivals), rel=0.3)
        assert counts["highest"] == pytest.approx(2 * per_row["even"] * total_rows(arrivals), rel=0.3)
        assert outcome.lasted_s >= 2 * arrivals[-1].at
        for query in outcome.queries.values():
            assert 0 < query.figures.response.mean <= outcome.lasted_s
            assert query.figures.slowdown.mean > 0
            assert 0 < query.staleness <= 1


def test_costs_from_a_home_directory_are_those_measured_by_its_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    with open_mill(spark, tmp_path / "home", subtasks=2, read_sources=False) as mill:
        mill.execute(SCRIPT)
        mill.open()
        streams = TrialSamples(RATES).of(mill)
        for number in range(1, 4):
            mill.feed("bid", streams["bid"].rows(50 * number, number * 1_000_000))
            mill.dispatcher.run_all()
        learned = {name: task.statistics.cost for name, task in mill.dispatcher.tasks.items()}
    catalog = bind(SCRIPT).catalog
    costs = costs_of_home(tmp_path / "home", catalog)
    for task in costs.tasks:
        alone = costs.alone(task, 2)
        assert alone.overhead == pytest.approx(learned[task.id].overhead)
        assert alone.per_row == pytest.approx(learned[task.id].per_row)
    assert costs.tasks[1].outputs[0] == Output("highest", pytest.approx(1.0, abs=0.1))
    other = bind(SCRIPT.text.replace("highest", "topmost")).catalog
    with pytest.raises(SlicemillError, match="has no costs of"):
        costs_of_home(tmp_path / "home", other)


def test_recorded_rows_are_played_in_time_order_without_unread_rows(spark: SparkSession) -> None:
    script = SourceText(
        SCRIPT.text.replace("CREATE STREAM even", "CREATE QUERY even").rpartition("CREATE")[0], "x"
    )
    with open_trial_mill(spark, script, lambda: 0) as mill:
        stream = TrialSamples(RATES).of(mill)["bid"]
        for end_us in (2_000_000, 3_000_000, 9_000_000):
            mill.feed("bid", stream.rows(400, end_us))
        mill.dispatcher.admit_handed()
        log = mill.home.logs["bid"]
        times = pa.concat_tables([log.read(epoch) for epoch in log.epochs()]).column(TS).to_pylist()
        assert mill.running.streams["bid"].counts.late == 0
    assert times == sorted(times)
    assert 0.5 * 1200 < len(times) < 1200  # even auctions, or a high price
    assert times[0] < 1_900_000
    assert not [ts for ts in times if 3_000_000 < ts < 8_000_000]


def test_a_trial_writes_to_no_sink_and_has_its_own_policy(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = SCRIPT.text.replace("weight = 3", f"sink = 'json:{out}'") + "SET policy = 'bsd';"
    with open_trial_mill(spark, SourceText(text, "x"), lambda: 10_000_000, "rr") as mill:
        stream = TrialSamples(RATES).of(mill)["bid"]
        mill.feed("bid", stream.rows(400, 2_000_000))
        mill.dispatcher.run_all()
        assert mill.dispatcher.chooser.policy.name == "rr"
        assert mill.queries["dear"].timed_rows()
    assert not out.exists() or not list(out.iterdir())


def test_a_source_that_cannot_be_sampled_is_reported(tmp_path: Path) -> None:
    def sample(source: str) -> pa.Table:
        catalog = bind(f"CREATE STREAM s (a int, ts timestamp) ORDER BY ts SOURCE '{source}';").catalog
        return read_sample(catalog.declared_stream("s"), 10, tmp_path)

    (tmp_path / "rows.csv").write_text("1,1970-01-01 00:00:01\nx,y\n2,1970-01-01 00:00:02\n")
    (tmp_path / "empty.csv").write_text("")
    assert sample("rows.csv").num_rows == 2
    with pytest.raises(SlicemillError, match="has no rows for a trial"):
        sample("empty.csv")
    with pytest.raises(SlicemillError, match="home directory instead: --home"):
        sample("tcp://localhost:9")
