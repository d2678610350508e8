"""Benchmark of policies at small scale: recordings are replayed unchanged, and all rows are emitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from slicemill.scheduling.policies import POLICIES
from slicemill_lab.bench.inputs.testbeds import quality_of_data, quality_of_service
from slicemill_lab.bench.measuring.policy_overhead import decision_ms
from slicemill_lab.bench.measuring.policy_turns import METRICS, PolicyTurn, PolicyTurns
from slicemill_lab.bench.measuring.ways_to_choose import ways_to_choose_us
from slicemill_lab.bench.policies import different, disturbed, ratios


def test_policies_get_the_same_arrivals_and_give_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    bed = quality_of_data(4, streams=2, characters=256)
    with PolicyTurns(spark, tmp_path, bed) as bench:
        assert len(set(bench.costs().values())) == len(bed.queries), "each query is a task of its own"
        arrivals = bed.recorded(gap_s=0.01, count=20, seed=1)
        turns = {name: [bench.under(name, arrivals)] for name in ("hnr", "fas")}
    assert not different(turns)
    came = {stream: [a.rows for a in arrivals if a.stream == stream] for stream in bed.streams}
    for query in bed.queries:
        rows = pa.concat_tables(came[query.stream])
        passes = np.maximum(rows.column("first"), rows.column("second")) <= query.percent
        expected = rows.column("number").to_numpy()[passes].tolist()
        for (turn,) in turns.values():
            found = turn.results.get(query.name)
            assert ([] if found is None else found.column("number").to_pylist()) == expected
    for (turn,) in turns.values():
        assert turn.felt.keys() == set(METRICS)
        assert 0 < turn.felt["mean response"] <= turn.felt["longest response"]
        assert turn.busy > 0 and turn.decision_ms > 0
        assert all(cost.estimated_s > 0 for cost in turn.costs.values())
        # On some machines the processor clock advances in steps of 10 ms, so a single task may count nothing.
        assert sum(cost.real_s for cost in turn.costs.values()) > 0


def test_medians_relative_to_their_recording_are_compared() -> None:
    def turns(*means: float) -> list[PolicyTurn]:
        table = pa.table({"number": [1]})
        return [PolicyTurn({"mean response": mean}, {"q": table}, 0.5, 1.0, 0.1, {}) for mean in means]

    found = {"hr": turns(1, 4, 3), "fcfs": turns(2, 2, 4)}
    assert ratios(found, "mean response") == {"hr": 1, "fcfs": pytest.approx(4 / 3)}
    assert not different(found)
    found["fcfs"][1] = replace(found["fcfs"][1], results={"q": pa.table({"number": [2]})})
    assert different(found) == {"q"}


def test_one_lucky_run_makes_no_other_policy_worse() -> None:
    def turns(*means: float) -> list[PolicyTurn]:
        return [PolicyTurn({"mean response": mean}, {}, 0.5, 1.0, 0.1, {}) for mean in means]

    # Each other policy is lucky once, and the recordings differ: overall all policies are equal.
    found = {"hr": turns(1, 2, 3, 4, 5), "fcfs": turns(0.8, 2, 3, 4, 5), "fas": turns(1, 1.6, 3, 4, 4)}
    assert all(ratio < 1.1 for ratio in ratios(found, "mean response").values())


def test_a_disturbed_run_is_repeated() -> None:
    def turns(*paces: float) -> list[PolicyTurn]:
        return [PolicyTurn({}, {}, 0.5, pace, 0.1, {}) for pace in paces]

    # The second recording takes a tenth longer, and so does fcfs; this is no disturbance.
    found = {name: turns(1.0, 1.1, 1.0, 1.0, 1.0) for name in ("hr", "hnr")}
    found |= {"fas": turns(1.0, 1.1, 1.0, 1.2, 1.3), "fcfs": turns(1.1, 1.21, 1.1, 1.1, 1.1)}
    assert disturbed(found) == [("fas", 4), ("fas", 3)]


def test_cost_classes_are_equally_frequent_and_recordings_are_reproducible() -> None:
    service, data = quality_of_service(30), quality_of_data(30, streams=10)
    assert np.bincount([query.cost_class for query in service.queries]).tolist() == [6] * 5
    assert np.bincount([query.cost_class for query in data.queries]).tolist() == [10] * 3
    assert all(10 <= query.percent <= 100 for query in (*service.queries, *data.queries))
    for bed in (service, data):
        once, again, other = (bed.recorded(0.1, 30, seed) for seed in (1, 1, 2))
        assert once == again != other
    assert {len(arrival.rows) for arrival in data.recorded(0.1, 30, 1)} == {1, 10}


def test_a_decision_is_timed_for_every_policy() -> None:
    found = decision_ms(tasks=20)
    assert found.keys() == POLICIES.keys()
    assert all(ms > 0 for ms in found.values())
    assert all(us > 0 for us in ways_to_choose_us(tasks=20).values())
