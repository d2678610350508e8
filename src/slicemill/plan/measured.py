"""What has been measured of a unit's joins, as its placement is chosen by it (S52)."""

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
    """Rates and matches of a unit whose joins know what all cells have measured together; else assumed.

    With the `exchanges` of that time, rows that several cells have stored are counted once.
    """
    joined = joined_inputs(unit, graph)
    rates: dict[str, float] = {}
    matching: dict[str, float] = {}
    for one in joined.inputs if joined is not None else ():
        join = graph[one.join].operator
        if not isinstance(join, (SharedJoin, SharedMultiJoin)) or join.measured is None:
            continue
        copies = _copies((exchanges or {}).get(one.logs[0]))
        # Of what is computed from several logs nobody knows how much comes from each.
        rates |= dict.fromkeys(one.logs, join.measured.rates[one.port] / copies / len(one.logs))
        # Pairs are found once, however often their rows are stored.
        matching[one.join] = matching.get(one.join, join.measured.matching) * copies
    return PlacementStatistics(rates=rates, matching=matching) if rates else ASSUMED


def _copies(exchange: Exchange | None) -> int:
    """How many cells store a row; where all read all of them, one does."""
    return 1 if exchange is None or exchange.parts == 1 else exchange.cells // exchange.parts
