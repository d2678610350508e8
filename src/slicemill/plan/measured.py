"""Measured rates and matches of joins, for choosing a placement (S52)."""

from __future__ import annotations

from collections.abc import Mapping

from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.multijoin.spec import SharedMultiJoin
from slicemill.plan.joined_inputs import joined_inputs
from slicemill.plan.partitions import Exchange
from slicemill.plan.placement_cost import ASSUMED, PlacementStatistics
from slicemill.plan.units import Unit


def measured_statistics(
    unit: Unit, graph: QueryGraph, exchanges: Mapping[str, Exchange] | None = None
) -> PlacementStatistics:
    """Return measured rates and matches of a unit's joins, else assumed ones.

    With the `exchanges` during the measurement, rows stored in several cells are counted once.
    """
    joined = joined_inputs(unit, graph)
    rates: dict[str, float] = {}
    matching: dict[str, float] = {}
    for one in joined.inputs if joined is not None else ():
        join = graph[one.join].operator
        if not isinstance(join, (SharedJoin, SharedMultiJoin)) or join.measured is None:
            continue
        copies = _copies((exchanges or {}).get(one.logs[0]))
        # The share of each log in a computed input is unknown: assume equal shares.
        rates |= dict.fromkeys(one.logs, join.measured.rates[one.port] / copies / len(one.logs))
        # Each pair is found once, regardless of how many cells store its rows.
        matching[one.join] = matching.get(one.join, join.measured.matching) * copies
    return PlacementStatistics(rates=rates, matching=matching) if rates else ASSUMED


def _copies(exchange: Exchange | None) -> int:
    """Return the number of cells that store a row.

    With a placement by time it is one, though all cells read the row.
    """
    return 1 if exchange is None or exchange.parts == 1 else exchange.cells // exchange.parts
