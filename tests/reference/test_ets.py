"""Timestamp kinds and enabling timestamps: on demand, periodic, none (M22, M24-M26, golden G12)."""

from __future__ import annotations

import pytest

from slicemill.operators.join.rows import JoinByRows, TimeWindow
from slicemill_oracle.costs import constant_cost
from slicemill_oracle.engine import Engine
from slicemill_oracle.ets import EtsMode, NoEts, OnDemand, Periodic, Propagation, ets_now, moment_of_ets
from slicemill_oracle.graph import OperatorSpec, SinkSpec
from slicemill_oracle.operators.stateless import Select, Union
from slicemill_oracle.sources import Arrival, ScheduledSource

SECOND = 1_000_000


def union(
    a: ScheduledSource, b: ScheduledSource, ets: EtsMode, propagation: Propagation = "punctuation"
) -> Engine:
    nodes = [
        a,
        b,
        OperatorSpec("σA", Select(lambda _: True), (a.name,), constant_cost(10)),
        OperatorSpec("σB", Select(lambda _: True), (b.name,), constant_cost(10)),
        OperatorSpec("U", Union(), ("σA", "σB"), constant_cost(10)),
        SinkSpec("out", "U"),
    ]
    return Engine(nodes, ets=ets, propagation=propagation, trace=True)


def test_g12_an_external_stream_offers_last_timestamp_plus_elapsed_minus_skew() -> None:
    assert ets_now("external", now=112, last_ts=100, last_arrival=100, skew_us=5) == 107
    assert moment_of_ets(107, "external", last_ts=100, last_arrival=100, skew_us=5) == 112


def test_g12_an_internal_stream_offers_the_clock() -> None:
    assert ets_now("internal", now=250, last_ts=None, last_arrival=0, skew_us=None) == 250


@pytest.mark.parametrize(("last_ts", "skew_us"), [(None, 5), (100, None)])
def test_an_external_stream_without_tuples_or_skew_offers_no_ets(
    last_ts: int | None, skew_us: int | None
) -> None:
    assert ets_now("external", 300, last_ts, 100, skew_us) is None
    assert moment_of_ets(300, "external", last_ts, 100, skew_us) is None


@pytest.mark.parametrize("propagation", ["punctuation", "arcs"])
def test_g12_a_second_request_without_effect_is_not_sent(propagation: Propagation) -> None:
    engine = union(ScheduledSource("A"), ScheduledSource("B"), OnDemand(), propagation)
    engine.feed("A", [Arrival(250, ("a",))])
    engine.run_until_idle()
    assert engine.results("out")[0].ts == 250
    steps = engine.steps
    engine.run_until(1_000)
    assert engine.steps == steps


def test_without_ets_a_tuple_waits_for_the_next_tuple_of_the_other_stream() -> None:
    engine = union(ScheduledSource("A"), ScheduledSource("B"), NoEts())
    engine.feed("A", [Arrival(0, ("a",))])
    engine.feed("B", [Arrival(5 * SECOND, ("b",))])
    engine.run_until_idle()
    assert engine.results("out")[0].row == ("a",)
    assert engine.sink("out").delivered_at == [5 * SECOND + 20]


def test_with_on_demand_ets_a_tuple_does_not_wait_for_a_silent_stream() -> None:
    engine = union(ScheduledSource("A"), ScheduledSource("B"), OnDemand())
    engine.feed("A", [Arrival(0, ("a",))])
    engine.run_until_idle()
    assert [step.state for step in engine.trace] == ["σA", "σB", "U"]
    assert engine.sink("out").delivered_at == [30]


def test_over_arcs_the_enabling_timestamp_bypasses_the_selection() -> None:
    engine = union(ScheduledSource("A"), ScheduledSource("B"), OnDemand(), "arcs")
    engine.feed("A", [Arrival(0, ("a",))])
    engine.run_until_idle()
    assert [step.state for step in engine.trace if step.what == "data"] == ["σA", "U"]
    assert engine.sink("out").delivered_at == [20]


def test_an_ets_is_also_requested_for_a_tuple_behind_an_unused_punctuation() -> None:
    engine = union(ScheduledSource("A"), ScheduledSource("B"), OnDemand())
    engine.feed("A", [Arrival(0, ("a",))])
    engine.feed("B", [Arrival(100, ("b",))])
    engine.run_until_idle()
    assert [tuple_.row for tuple_ in engine.results("out")] == [("a",), ("b",)]


def test_with_periodic_ets_a_tuple_waits_for_the_next_heartbeat() -> None:
    engine = union(ScheduledSource("A"), ScheduledSource("B"), Periodic(1_000, ("B",)))
    engine.feed("A", [Arrival(300, ("a",)), Arrival(1_500, ("a",))])
    engine.run_until(2_500)
    assert engine.sink("out").delivered_at == [1_020, 2_020]


def test_an_external_stream_is_polled_again_when_its_ets_can_release_a_tuple() -> None:
    a = ScheduledSource("A", "external", skew_us=0)
    b = ScheduledSource("B", "external", skew_us=5_000)
    engine = union(a, b, OnDemand())
    engine.feed("A", [Arrival(1_000, ("a",), ts=1_000)])
    engine.feed("B", [Arrival(0, ("b",), ts=0)])
    engine.run_until(20_000)
    assert engine.sink("out").delivered_at[-1] == 6_020


def test_latent_streams_never_wait() -> None:
    engine = union(ScheduledSource("A", "latent"), ScheduledSource("B", "latent"), NoEts())
    engine.feed("A", [Arrival(0, ("a",))])
    engine.run_until_idle()
    assert engine.sink("out").delivered_at == [20]
    assert engine.metrics().idle_share == {}


def test_a_union_of_a_latent_and_a_stamped_stream_merges_by_arrival() -> None:
    engine = union(ScheduledSource("A", "latent"), ScheduledSource("B"), OnDemand())
    engine.feed("A", [Arrival(5, ("a",))])
    engine.feed("B", [Arrival(3, ("b",)), Arrival(9, ("b",))])
    engine.run()
    assert [tuple_.ts for tuple_ in engine.results("out")] == [3, 5, 9]


def test_x20_a_join_without_results_forwards_the_time_to_its_consumers() -> None:
    join = JoinByRows((TimeWindow(10), TimeWindow(10)), lambda _: False)
    nodes = [
        *(ScheduledSource(name, "external") for name in "ABC"),
        OperatorSpec("J", join, ("A", "B")),
        OperatorSpec("U", Union(), ("J", "C")),
        SinkSpec("out", "U"),
    ]
    for propagation in ("punctuation", "arcs"):
        engine = Engine(nodes, propagation=propagation)  # type: ignore[arg-type]
        engine.feed("C", [Arrival(0, ("c",), ts=4)])
        engine.feed("A", [Arrival(1, ("a",), ts=5)])
        engine.feed("B", [Arrival(2, ("b",), ts=6)])
        engine.run_until_idle()
        assert [tuple_.row for tuple_ in engine.results("out")] == [("c",)]


def test_an_ended_stream_does_not_delay_other_streams() -> None:
    engine = union(ScheduledSource("A"), ScheduledSource("B"), NoEts())
    engine.close("B")
    engine.feed("A", [Arrival(1, ("a",)), Arrival(2, ("a",))])
    engine.run_until_idle()
    assert len(engine.results("out")) == 2
