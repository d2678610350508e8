"""Enhanced query graph: ETS arcs that bypass operators without timestamp registers (M23)."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from slicemill_oracle.graph import Topology


@dataclass(frozen=True, slots=True)
class EtsArc:
    """Arc from a source or timed operator to the next TSM register.

    `path` lists the (operator, input) buffers in between, the register's own first. An ETS may bypass these
    buffers only while they are empty.
    """

    origin: str
    target: str
    port: int
    path: tuple[tuple[str, int], ...]


def ets_arcs(topology: Topology, timed: Set[str]) -> list[EtsArc]:
    """Return all ETS arcs, by target and input.

    `timed` are the operators with TSM registers. They must include every operator with several inputs, so
    that exactly one arc ends in each register.
    """
    arcs = []
    for target, inputs in topology.operators.items():
        if target not in timed:
            continue
        for port, producer in enumerate(inputs):
            origin = producer
            path = [(target, port)]
            while origin in topology.operators and origin not in timed:
                path.append((origin, 0))
                (origin,) = topology.operators[origin]
            arcs.append(EtsArc(origin, target, port, tuple(path)))
    return arcs


def reachable_arcs(source: str, arcs: list[EtsArc]) -> list[EtsArc]:
    """Return the arcs that an ETS of `source` may travel, nearest first."""
    found = [arc for arc in arcs if arc.origin == source]
    for reached in found:
        found += [arc for arc in arcs if arc.origin == reached.target and arc not in found]
    return found
