"""Input wrappers: timestamps, late tuples, slack and the agenda (M24-M27)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.errors import SlicemillError
from slicemill_oracle.engine import Engine
from slicemill_oracle.graph import OperatorSpec, SinkSpec
from slicemill_oracle.operators.stateless import Select
from slicemill_oracle.sources import Agenda, Arrival, EventLane, ScheduledSource


def engine_of(source: ScheduledSource) -> Engine:
    nodes = [
        source,
        OperatorSpec("σ", Select(lambda _: True), (source.name,)),
        SinkSpec("out", "σ"),
    ]
    late = [SinkSpec("late", f"{source.name}_late")] if source.kind == "external" else []
    return Engine([*nodes, *late])


def external(*timestamps: int) -> list[Arrival]:
    return [Arrival(at, (ts,), ts) for at, ts in enumerate(timestamps)]


def test_a_tuple_of_an_internal_stream_is_stamped_with_its_arrival() -> None:
    engine = engine_of(ScheduledSource("S"))
    engine.feed("S", [Arrival(5, ("a",)), Arrival(5, ("b",)), Arrival(9, ("c",))])
    engine.run()
    assert [tuple_.ts for tuple_ in engine.results("out")] == [5, 5, 9]


def test_a_tuple_out_of_order_is_sent_to_the_late_stream() -> None:
    engine = engine_of(ScheduledSource("S", "external"))
    engine.feed("S", external(10, 20, 15, 20, 30))
    engine.run()
    assert [tuple_.ts for tuple_ in engine.results("out")] == [10, 20, 20, 30]
    assert [tuple_.row for tuple_ in engine.results("late")] == [(15,)]
    assert engine.late_rows("S") == 1


def test_a_tuple_below_an_announced_watermark_is_late() -> None:
    engine = engine_of(ScheduledSource("S", "external"))
    engine.promise("S", 12)
    engine.feed("S", external(11, 12))
    engine.run()
    assert [tuple_.ts for tuple_ in engine.results("out")] == [12]
    assert engine.late_rows("S") == 1


def test_tuples_within_the_slack_are_sorted() -> None:
    engine = engine_of(ScheduledSource("S", "external", slack_us=10))
    engine.feed("S", external(10, 20, 15, 12, 40, 29))
    engine.run()
    assert [tuple_.ts for tuple_ in engine.results("out")] == [10, 12, 15, 20, 40]
    assert [tuple_.row for tuple_ in engine.results("late")] == [(29,)]


def test_an_enabling_timestamp_releases_held_tuples_below_it() -> None:
    engine = engine_of(ScheduledSource("S", "external", slack_us=100))
    engine.feed("S", external(20, 10))
    engine.run_until_idle()
    assert engine.results("out") == []
    engine.promise("S", 15)
    engine.run_until_idle()
    assert [tuple_.ts for tuple_ in engine.results("out")] == [10]


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(0, 60))
def test_main_and_late_stream_together_have_every_tuple_and_the_main_stream_is_ordered(
    timestamps: list[int], slack_us: int
) -> None:
    engine = engine_of(ScheduledSource("S", "external", slack_us=slack_us))
    engine.feed("S", external(*timestamps))
    engine.run()
    main = [tuple_.ts for tuple_ in engine.results("out")]
    late = [tuple_.row[0] for tuple_ in engine.results("late")]
    assert main == sorted(main)
    assert sorted([*main, *late]) == sorted(timestamps)
    if slack_us == 60:
        assert not late


def test_an_external_tuple_without_timestamp_is_rejected_with_its_stream() -> None:
    engine = engine_of(ScheduledSource("S", "external"))
    engine.feed("S", [Arrival(0, ("x",))])
    with pytest.raises(SlicemillError, match=r"stream S is external.*needs a timestamp"):
        engine.run()


def test_an_ended_stream_rejects_tuples() -> None:
    engine = engine_of(ScheduledSource("S"))
    engine.run()
    engine.feed("S", [Arrival(0, ("x",))])
    with pytest.raises(SlicemillError, match="stream S has ended"):
        engine.run()


def test_decreasing_arrival_times_are_rejected() -> None:
    engine = engine_of(ScheduledSource("S"))
    engine.feed("S", [Arrival(5, ()), Arrival(4, ())])
    with pytest.raises(SlicemillError, match="from 5 to 4"):
        engine.run()


def test_arrivals_are_drawn_from_a_generator_only_as_time_advances() -> None:
    drawn = []

    def arrivals() -> Iterator[Arrival]:
        for at in range(0, 1_000, 10):
            drawn.append(at)
            yield Arrival(at, ())

    engine = engine_of(ScheduledSource("S"))
    engine.feed("S", arrivals())
    engine.run_until(35)
    assert drawn == [0, 10, 20, 30, 40]


def test_the_agenda_fires_by_time_and_then_in_the_order_of_its_lanes() -> None:
    fired: list[str] = []
    agenda = Agenda()
    agenda.add(
        EventLane("a", [Arrival(1, ()), Arrival(3, ())], lambda arrival: fired.append(f"a{arrival.at}"))
    )
    agenda.add(
        EventLane("b", [Arrival(1, ()), Arrival(2, ())], lambda arrival: fired.append(f"b{arrival.at}"))
    )
    agenda.fire_until(2)
    assert fired == ["a1", "b1", "b2"]
    assert (agenda.next_at, agenda.finished) == (3, False)
    agenda.fire_until(3)
    assert agenda.finished
