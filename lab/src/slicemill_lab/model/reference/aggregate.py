"""Graphs as Python aggregates of ESL, usable in queries (C10-C13, C15).

    mill.execute(graph_statements("squares", incremental_graph(expression("sum(x^2)"))))
    mill.query("SELECT squares(v) OVER (PARTITION BY k ROWS 3 PRECEDING) AS s FROM readings")

Each arriving tuple is an instance. S emits the tuple, and F removes as many of the oldest elements as
have expired. The registers W are the state, in exact arithmetic. The name of the generated class encodes
the graph, so every process can recreate the class.
"""

from __future__ import annotations

import math
import zlib
from fractions import Fraction
from functools import cache
from typing import Any

from slicemill.extensions.models import rules as merge_equal
from slicemill.extensions.models.graph import ModelGraph
from slicemill.extensions.models.terms import ModelError
from slicemill_lab.model.reference.interpret import Instance, RunningGraph

_PREFIX = "graph_"


def graph_statements(name: str, graph: ModelGraph) -> str:
    """Return CREATE AGGREGATE statements for windows and groups.

    Equal parts of the graph are computed once (R9).
    """
    graph.validate()
    sources = [node.id for node in graph.nodes if node.op == "S"]
    if len(sources) != 1:
        raise ModelError(
            f"a query reads one stream, and the graph has {len(sources)} S: join the streams first"
        )
    class_name = (
        _PREFIX + zlib.compress((merge_equal.merge_equal(graph) or graph).to_json().encode(), 9).hex()
    )
    arguments = ", ".join(f"{column} REAL" for column in graph.columns)
    where = f"{__name__}:{class_name}"
    return "".join(
        f"CREATE {version}AGGREGATE {name}({arguments}) : REAL LANGUAGE PYTHON AS '{where}{end}';\n"
        for version, end in (("", "_base"), ("WINDOW ", ""))
    )


class GraphAggregate:
    """Runs a graph for one group or partition; skips NULL (C24)."""

    graph: ModelGraph

    def __init__(self) -> None:
        self._running = RunningGraph(self.graph)
        self._leaving = 0
        self._value: float | None = None

    def initialize(self, *element: float | None) -> float | None:
        self._running.registers = None
        self._leaving = 0
        return self.iterate(*element)

    def iterate(self, *element: float | None) -> float | None:
        known = [x for x in element if x is not None and math.isfinite(x)]
        new = () if len(known) < len(element) else (known[0] if len(known) == 1 else tuple(known),)
        found = self._running.slide(Instance(new, self._leaving))
        self._leaving = 0
        self._value = None if found is None else float(found)
        return self._value

    def expire(self, *element: float | None) -> None:
        self._leaving += all(x is not None and math.isfinite(x) for x in element)

    def __getstate__(self) -> dict[str, Any]:
        registers = self._running.registers
        kept = None if registers is None else {name: _plain(vector) for name, vector in registers.items()}
        return {"registers": kept, "leaving": self._leaving, "value": self._value}

    def __setstate__(self, state: dict[str, Any]) -> None:
        kept = state["registers"]
        self._running.registers = None if kept is None else {name: _exact(v) for name, v in kept.items()}
        self._leaving, self._value = state["leaving"], state["value"]


class GraphOfGroups(GraphAggregate):
    """Variant without expiry that returns the value at the end."""

    def initialize(self, *element: float | None) -> None:
        super().initialize(*element)

    def iterate(self, *element: float | None) -> None:
        super().iterate(*element)

    def terminate(self) -> float | None:
        return self._value


def _plain(value: Any) -> Any:
    """Convert a register's content to JSON types."""
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, Fraction) else value


def _exact(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_exact(part) for part in value)
    return Fraction(value) if isinstance(value, str) else value


@cache
def __getattr__(name: str) -> type:
    if not name.startswith(_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    digits, _, version = name.removeprefix(_PREFIX).partition("_")
    graph = ModelGraph.from_json(zlib.decompress(bytes.fromhex(digits)).decode())
    made = GraphOfGroups if version else GraphAggregate
    return type(name, (made,), {"graph": graph, "__module__": __name__})
