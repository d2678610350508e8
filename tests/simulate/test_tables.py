"""Predicted and measured rankings of policies."""

from __future__ import annotations

import io

from rich.console import Console

from slicemill.capacity.tables import agreement, outcomes_as_json, policies_table, queries_table
from slicemill.scheduling.rehearsal import Outcome, QueryOutcome


def outcome(response: float, staleness: float) -> Outcome:
    query = QueryOutcome(staleness=staleness, mean_waiting=0.0)
    query.record(0.0, response, 10, 2.0)
    return Outcome({"q": query}, 10.0, 12.0)


def test_only_clear_differences_are_compared() -> None:
    predicted = {"a": outcome(1.0, 0.1), "b": outcome(2.0, 0.1), "c": outcome(2.1, 0.1)}
    measured = {"a": outcome(1.5, 0.3), "b": outcome(4.0, 0.2), "c": outcome(3.0, 0.1)}
    found = agreement(predicted, measured)
    assert found["mean response"] == (["a", "b", "c"], ["a", "c", "b"], 2, 2)
    assert found["staleness"] == (["a", "b", "c"], ["c", "b", "a"], 0, 0)


def test_a_wrong_order_counts_as_a_disagreement() -> None:
    predicted = {"a": outcome(1.0, 0.1), "b": outcome(2.0, 0.2)}
    measured = {"a": outcome(3.0, 0.1), "b": outcome(2.0, 0.2)}
    assert agreement(predicted, measured)["mean slowdown"][2:] == (0, 1)
    assert agreement(predicted, measured)["staleness"][2:] == (1, 1)


def test_json_has_null_for_metrics_without_results() -> None:
    empty = Outcome({"q": QueryOutcome(staleness=0.0, mean_waiting=0.0)}, 10.0, 12.0)
    (found,) = outcomes_as_json({"a": empty})
    assert found["queries"][0]["response_s"] == {"count": 0, "mean": None, "max": None, "l2": None}
    assert found["behind_s"] == 2.0


def test_tables_of_several_policies_fit_in_80_columns() -> None:
    query = QueryOutcome(staleness=0.219, mean_waiting=126.0, most_waiting=1_575)
    query.record(0.0, 0.219, 1_380_000, 0.1)
    found = {policy: Outcome({"highest_bid_so_far": query}, 10.0, 12.0) for policy in ("fcfs", "hnr")}
    seen = io.StringIO()
    Console(file=seen, width=80).print(queries_table("by query", found), policies_table("all", found))
    lines = seen.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in seen.getvalue()
    assert sum({"1,380,000", "219", "21.9%"} <= set(line.split()) for line in lines) == 4
