"""The corpus on the reference engine: tuple at a time, with several strategies and kinds of watermarks."""

from __future__ import annotations

import pytest

from slicemill.catalog.queries import RelationQuery
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill_oracle.engine import Engine
from slicemill_oracle.nos import Strategy
from slicemill_oracle.runner import answer
from slicemill_oracle.sources import Arrival, ScheduledSource
from slicemill_oracle.translate import translate
from support.corpus import Case, Runnable, check_rows, parameters, prepare


def run(
    runnable: Runnable, strategy: Strategy = "DFS", rewrite: bool = True
) -> dict[str, list[tuple[int, tuple]]]:
    catalog = runnable.catalog
    graph = build_graph(catalog)
    tables, changes = dict(runnable.tables), list(runnable.changes)
    nodes = translate(optimize(graph) if rewrite else graph, catalog, tables)
    engine = Engine(nodes, strategy=strategy)
    read = {node.name for node in nodes if isinstance(node, ScheduledSource)}
    for event in runnable.events:
        while changes and changes[0].at_us <= event.arrival_us:
            engine.run_until_idle()
            change = changes.pop(0)
            tables[change.table] = change.rows
        if event.stream not in read:
            continue
        if event.ts_us is None:
            continue  # Rows without a timestamp are bad rows, which the input sorts out.
        if event.row is None:
            engine.run_until(event.arrival_us)
            engine.promise(event.stream, event.ts_us)
        else:
            engine.feed(event.stream, [Arrival(event.arrival_us, event.row, event.ts_us)])
            engine.run_until_idle()
    engine.run()
    results: dict[str, list[tuple[int, tuple]]] = {}
    for query in catalog.queries.values():
        if isinstance(query.query, RelationQuery):
            rows = answer(query.query, catalog, tables, engine)
            results[query.name] = [(None, row) for row in rows]
        else:
            results[query.name] = [(timed.ts, timed.row) for timed in engine.results(query.name)]
    return results


def check(case: Case, strategy: Strategy = "DFS", rewrite: bool = True) -> None:
    runnable = prepare(case)
    results = run(runnable, strategy, rewrite)
    for query, expected in runnable.expected.items():
        check_rows(expected, results[query], query)


@pytest.mark.parametrize("case", parameters())
def test_a_case_gives_its_rows(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("strategy", ["BFS", "RR"])
@pytest.mark.parametrize("case", parameters())
def test_a_case_gives_its_rows_under_every_strategy(case: Case, strategy: Strategy) -> None:
    check(case, strategy)


@pytest.mark.parametrize("case", parameters())
def test_rewrites_of_the_graph_change_no_row(case: Case) -> None:
    check(case, rewrite=False)
