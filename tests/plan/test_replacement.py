"""When a unit should have other cells: not while it has little to do, and not for little."""

from __future__ import annotations

import pytest

from plan.test_placement import PAIR, THETA, planned
from slicemill.plan.join_inputs import join_inputs_of
from slicemill.plan.placement import ONE_CELL, Placement, PlacementKind, choose_placement, price_of
from slicemill.plan.placement_cost import cost_of
from slicemill.plan.rescale_decision import Hysteresis, UnitWork, calibrate_statistics, cheaper_placement

BUSY = UnitWork(1.5, {})
RATES = {"a": 1000.0, "b": 1000.0}


@pytest.mark.parametrize("query", [PAIR, THETA])
def test_what_the_model_says_is_made_what_was_measured(query: str) -> None:
    unit, graph = planned(query)
    joined = join_inputs_of(unit, graph)
    for cpu_s in (0.3, 1.5):
        known = calibrate_statistics(unit, graph, ONE_CELL, RATES, UnitWork(cpu_s, {}))
        assert cost_of({}, unit.inputs, joined, known).cpu_s == pytest.approx(cpu_s)
        assert known.rates == RATES


def test_pairs_that_are_compared_say_how_many_match() -> None:
    unit, graph = planned(PAIR)
    joined = join_inputs_of(unit, graph)
    assert joined is not None
    (join,) = {one.join for one in joined.inputs}
    # A thousand rows a second meet ten thousand each, on either side.
    known = calibrate_statistics(unit, graph, ONE_CELL, RATES, UnitWork(1.0, {join: 20_000.0}))
    assert known.matching == {join: pytest.approx(0.001)}


def test_one_busy_cell_becomes_several_and_stays_so() -> None:
    unit, graph = planned(PAIR)
    known = calibrate_statistics(unit, graph, ONE_CELL, RATES, BUSY)
    found = cheaper_placement(unit, graph, ONE_CELL, 4, known, lambda _: True)
    assert found is not None and found.kind is PlacementKind.KEY and found.cells in (4, 8)
    # What was found is left for nothing that is a little better.
    again = calibrate_statistics(unit, graph, found, RATES, BUSY)
    assert cheaper_placement(unit, graph, found, 4, again, lambda _: True) is None


def test_what_is_not_allowed_is_not_found() -> None:
    unit, graph = planned(THETA)
    known = calibrate_statistics(unit, graph, ONE_CELL, RATES, BUSY)
    found = cheaper_placement(unit, graph, ONE_CELL, 4, known, lambda _: True)
    assert found is not None and found.kind is PlacementKind.TIME
    assert cheaper_placement(unit, graph, ONE_CELL, 4, known, lambda to: to.cells == 1) is None


def test_a_wrong_placement_is_left() -> None:
    """By time costs what by key does, times the cells."""
    unit, graph = planned(PAIR)
    by_time = choose_placement(unit, graph, 4, kind=PlacementKind.TIME)
    known = calibrate_statistics(unit, graph, by_time, RATES, UnitWork(3.0, {}))
    found = cheaper_placement(unit, graph, by_time, 4, known, lambda _: True)
    assert found is not None and found.kind is PlacementKind.KEY
    assert price_of(found, unit, graph, known, 4) < price_of(by_time, unit, graph, known, 4)


def test_a_change_has_to_be_wanted_for_some_time_and_rests_then() -> None:
    unit, graph = planned(PAIR)
    four, eight = (choose_placement(unit, graph, cells, kind=PlacementKind.KEY) for cells in (4, 8))
    kept = Hysteresis()
    looks: list[Placement | None] = [four, eight, four, four, None, four, four, four]
    assert [kept.decide(look) for look in looks] == [None] * 7 + [four]
    assert [kept.decide(eight) for _ in range(12)] == [None] * 11 + [eight]
