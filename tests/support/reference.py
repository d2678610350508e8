"""Queries by the reference's operators, one after the other, each handed all its tuples in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slicemill.catalog.catalog import Catalog
from slicemill.operators.specs import Materialize, QueryResults, Scan, Source
from slicemill.operators.step import input_nodes
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.types import Timed
from slicemill_oracle.translate import Translator
from support.corpus import Event, Row, TimedRow


def by_reference(
    catalog: Catalog, events: Sequence[Event], tables: Mapping[str, Sequence[Row]]
) -> dict[str, list[TimedRow]]:
    """The rows of all queries. At equal timestamps, the tuples of an operator's first input come first."""
    graph = optimize(build_graph(catalog))
    translator = Translator(graph, catalog, tables)
    made: dict[str, list[Timed]] = {}
    for node in graph:
        if isinstance(node.operator, Source):
            mine = (event for event in events if event.stream == node.operator.stream)
            made[node.id] = [Timed(e.ts_us, e.row) for e in mine if e.ts_us is not None and e.row is not None]
        elif isinstance(node.operator, QueryResults):
            made[node.id] = made[node.inputs[0]]
        elif not isinstance(node.operator, (Scan, Materialize)):
            operator = translator.operator(node)
            out: list[Timed] = []
            inputs = enumerate(made[source] for source in input_nodes(node, graph))
            arriving = [(tuple_, port) for port, tuples in inputs for tuple_ in tuples]
            for tuple_, port in sorted(arriving, key=lambda arrived: (arrived[0].ts, arrived[1])):
                if operator.waits_for_time:
                    out += operator.advance(tuple_.ts)
                out += operator.process(port, tuple_)
            made[node.id] = [*out, *operator.finish()]
    return {query: [(timed.ts, timed.row) for timed in made[query]] for query in catalog.queries}
