"""EXPLAIN of a user-defined aggregate: how each of its calls runs, with the generated code."""

from __future__ import annotations

from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import AggregateCall, FrameUnit, Window, WindowCall
from slicemill.errors import SlicemillError, did_you_mean
from slicemill.operators.specs import GroupAggregate
from slicemill.operators.window.spec import RelationAggregate, WindowAggregate, calls_that_run
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.plan.rules.arrivals_to_over import arrivals_to_over
from slicemill.types import Column


def explain_uda(name: str, catalog: Catalog) -> str:
    """Explain each distinct call of a user-defined aggregate in the script.

    If the script has no call, explain a call with the declared argument types.
    """
    known = {**catalog.base_aggregates, **catalog.window_aggregates}
    if not any(catalog.aggregates(name)):
        hint = did_you_mean(name, known) or f"it defines {', '.join(known) or 'no aggregates'}"
        raise SlicemillError(f"the script defines no aggregate {name}; {hint}")
    calls = _calls(name, catalog) or _possible(name, catalog)
    texts = []
    for title, call in calls.items():
        how = prepare(call, catalog).how
        texts.append(f"# {title} runs as {how}\n{how.source}".rstrip())
    return "\n\n".join(texts)


def _calls(name: str, catalog: Catalog) -> dict[str, AggregateCall | WindowCall]:
    """Return the calls in the script's optimized queries, by display name."""
    found: dict[str, AggregateCall | WindowCall] = {}
    for node in arrivals_to_over(optimize(build_graph(catalog)), catalog).nodes.values():
        operator = node.operator
        if isinstance(operator, GroupAggregate | WindowAggregate):
            found |= {_title(call): call for call in operator.calls}
        elif isinstance(operator, RelationAggregate):
            windows = ", ".join(f"[{window}]" for _, window in operator.windows)
            both = zip(operator.calls, calls_that_run(operator, catalog), strict=True)
            found |= {f"{_title(call)} over {windows}": runs for call, runs in both}
    return {title: call for title, call in found.items() if call.name.lower() == name.lower()}


def _title(call: AggregateCall | WindowCall) -> str:
    types = ", ".join(str(argument.type) for argument in call.arguments)
    over = f" OVER ({call.window})" if isinstance(call, WindowCall) else ""
    return f"{call.name}({types}){over}"


def _possible(name: str, catalog: Catalog) -> dict[str, AggregateCall | WindowCall]:
    base, window = catalog.aggregates(name)
    definition = base or window
    assert definition is not None, "the name is known"
    arguments = tuple(ColumnRef(column.name, column.type) for column in definition.arguments)
    columns: tuple[Column, ...] = definition.returns.columns
    call: AggregateCall | WindowCall = AggregateCall(name, arguments, False, columns)
    if base is None:
        call = WindowCall(name, arguments, False, (), Window(FrameUnit.ROWS, 9), columns)
    return {_title(call): call}
