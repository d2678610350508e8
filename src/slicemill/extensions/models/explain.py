"""`slicemill explain --model NAME`: how a model is computed, and what a slide of the window costs (C18).

The output lists the core statistics of the model: the sums, counts and extremes over the window from which
its result is computed. Each has a class, which says how it can be updated when the window slides, and a
reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from slicemill.catalog.catalog import Catalog
from slicemill.catalog.queries import FrameUnit, Window
from slicemill.errors import SlicemillError, did_you_mean, format_count
from slicemill.extensions.models.canonical_graphs import blocking_graph, execution_graph
from slicemill.extensions.models.cores import Core
from slicemill.extensions.models.cost import (
    CoreCosts,
    SlideCost,
    core_costs,
    cost_table,
    estimate,
    price_cores,
    price_table,
    ways_table,
)
from slicemill.extensions.models.definition import PREDEFINED, ModelDefinition, ModelTemplate
from slicemill.extensions.models.drawing import WindowUse, model_svg
from slicemill.extensions.models.letters import parse_written_flow, rewrite_flow
from slicemill.extensions.models.model import Model
from slicemill.extensions.models.rules import rule_description
from slicemill.extensions.models.terms import DIMENSION, WindowAggregation, walk
from slicemill.operators.window.spec import RelationAggregate, WindowAggregate
from slicemill.plan.build import build_graph

_ASSUMED_SIZE = 1000  # assumed number of elements in a window whose size depends on the data


def models_named(name: str, catalog: Catalog) -> list[ModelDefinition]:
    """Return the declared or predefined models with a name.

    A model with constants yields one definition per distinct call in the script.
    """
    declared = catalog.callable_named(name)
    if isinstance(declared, ModelTemplate):
        called = dict.fromkeys(
            call for call, _, _ in _calls(catalog) if catalog.declaration_name(call).lower() == name.lower()
        )
        if not called and not declared.constants:
            called = dict.fromkeys(declared.instance_names(()))
        if not called:
            raise SlicemillError(
                f"{declared} has constants, and the script does not call it: call it in a query, because "
                f"its class depends on the values of the constants"
            )
        return [
            model for call in called if isinstance(model := catalog.callable_named(call), ModelDefinition)
        ]
    if not isinstance(declared, ModelDefinition):
        known = [*(each.name for each in catalog.callables.values() if each.kind == "MODEL"), *PREDEFINED]
        hint = did_you_mean(name, known) or f"there are {', '.join(known)}"
        raise SlicemillError(f"there is no model {name}; {hint}")
    return [declared]


def explained(name: str, catalog: Catalog, form: str) -> str:
    """Return the output of `slicemill explain --model NAME` in the form text, json or svg."""
    definitions = models_named(name, catalog)
    if form == "text":
        return "\n".join(explain_model(definition, catalog) for definition in definitions)
    if len(definitions) > 1:
        names = ", ".join(f"'{definition.name}'" for definition in definitions)
        raise SlicemillError(f"{name} denotes several models; choose one of them: {names}")
    (definition,) = definitions
    if form == "svg":
        return model_svg(definition.name, definition.model, uses_of(definition.name, catalog)[0])
    return explain_model_json(definition, catalog)


def explain_model(definition: ModelDefinition, catalog: Catalog) -> str:
    """Return EXPLAIN of a model as text: its class, stored state, core statistics and costs."""
    costs = core_costs()
    model, class_ = definition.model, definition.model.classification
    lines = [
        f"{definition.name}{definition.arguments} = {model.text}",
        *([f"letters {definition.letters}"] if definition.letters else []),
        *_rewrites(definition),
        "",
        f"class   {class_.kind}: {class_.reason}",
        f"state   {class_.state_text} besides the elements of the window",
        f"result  {model.finalisation}",
        f"cores   {format_count(len(model.cores), 'core statistic')}, which the formula uses "
        f"{format_count(_count_aggregations(model), 'time')}",
        "",
    ]
    rows: list[tuple[str, ...]] = [("core", "class", "method", "state", "also in", "reason")]
    for core, of_core in zip(model.cores, model.classes, strict=True):
        shared = ", ".join(_also_in(core, definition, catalog)) or "-"
        way = (of_core.kind.value, of_core.way.value, of_core.state_text)
        rows.append((str(core), *way, shared, of_core.reason))
    lines += _table(rows)
    for use in uses_of(definition.name, catalog):
        lines += ["", f"calls in a slide, {use.words}: n = {use.n}, d = {use.d}"]
        lines += _table(cost_table(model, use.n, use.d))
        lines += ["", f"nanoseconds in a slide, {_origin(costs)}"]
        lines += _table(price_table(model, use.n, use.d, costs))
        lines += ["", "calls in a slide for one sum, by method"]
        lines += _table(ways_table(use.n, use.d, {class_.kind for class_ in model.classes}))
    return "\n".join(lines) + "\n"


def _origin(costs: CoreCosts) -> str:
    return (
        "as measured on this machine" if costs.measured else "as assumed: slicemill calibrate measures them"
    )


def _rewrites(definition: ModelDefinition) -> list[str]:
    """Return EXPLAIN lines for the rewrite rules applied to a model, with meaning and result."""
    steps: list[tuple[str, str]] = []
    if definition.letters:
        steps += (
            (rule, f"→ {flow}") for rule, flow in rewrite_flow(parse_written_flow(definition.letters))[1]
        )
    steps += definition.model.rewrites
    lines: list[str] = []
    described: set[str] = set()
    for rule, effect in steps:
        words = "" if rule in described else f": {rule_description(rule)}"
        lines += [f"  by {rule}{words}", f"    {effect}"]
        described.add(rule)
    return lines


def explain_model_json(definition: ModelDefinition, catalog: Catalog) -> str:
    """Return EXPLAIN of a model as JSON. Keys are stable, and new keys may be added.

    `name`, `text`, `parameters`, `class`, `reason`, `state`, `result`; `cores`, each with `core`, `notation`,
    `class`, `reason`, `way`, `state`, `per_element` and `also_in`; `costs`, each with `window`, `n`, `d`,
    `blocking` and `incremental` calls, and for each core statistic the `ways` with nanoseconds and the
    choice; `graph`, the graph that runs, and `blocking_graph`, the graph that reads the whole window at each
    slide.
    """
    model = definition.model
    record: dict[str, Any] = {
        "version": 1,
        "name": definition.name,
        "text": model.text,
        "letters": definition.letters or None,
        "rules": list(definition.rules),
        "rewrites": [{"rule": rule, "effect": effect} for rule, effect in model.rewrites],
        "parameters": list(definition.arguments.names),
        "class": model.classification.kind,
        "reason": model.classification.reason,
        "state": model.classification.state_text,
        "result": model.finalisation,
        "cores": [_core_record(number, definition, catalog) for number in range(len(model.cores))],
        "costs": [_cost_record(use, model) for use in uses_of(definition.name, catalog)],
        "graph": json.loads(execution_graph(model).to_json()),
        "blocking_graph": json.loads(blocking_graph(model).to_json()),
    }
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def _core_record(number: int, definition: ModelDefinition, catalog: Catalog) -> dict[str, Any]:
    core, class_ = definition.model.cores[number], definition.model.classes[number]
    return {
        "core": str(core),
        "notation": core.symbol,
        "class": class_.kind,
        "reason": class_.reason,
        "way": class_.way,
        "state": class_.state,
        "per_element": class_.per_element,
        "also_in": _also_in(core, definition, catalog),
    }


def _cost_record(use: WindowUse, model: Model) -> dict[str, Any]:
    both = estimate(model, use.n, use.d)

    def calls(cost: SlideCost) -> dict[str, int]:
        names = ("transforms", "combinations", "inverses", "stored")
        return {name: getattr(cost, name) for name in names}

    sizes = {"window": use.words, "n": use.n, "d": use.d}
    costs = core_costs()
    ways = [asdict(core) for core in price_cores(model, use.n, use.d, costs)]
    counted_calls = {"blocking": calls(both.blocking), "incremental": calls(both.incremental)}
    return {**sizes, **counted_calls, "measured": costs.measured, "ways": ways}


def _count_aggregations(model: Model) -> int:
    """Return the number of window aggregates in a model's formula, before equal ones are merged."""
    return sum(isinstance(part, WindowAggregation) or part == DIMENSION for part in walk(model.parsed))


def _also_in(core: Core, definition: ModelDefinition, catalog: Catalog) -> list[str]:
    """Return the names of the other models in the script that use the same core statistic."""
    templates = (model for model in catalog.callables.values() if isinstance(model, ModelTemplate))
    names = {template.name.lower() for template in templates}
    called = (call for call, _, _ in _calls(catalog) if catalog.declaration_name(call).lower() in names)
    instances = [catalog.callable_named(call) for call in dict.fromkeys(called)]
    others = [
        other for other in (*catalog.callables.values(), *instances) if isinstance(other, ModelDefinition)
    ]
    return [other.name for other in others if other.name != definition.name and core in other.model.cores]


def uses_of(name: str, catalog: Catalog) -> list[WindowUse]:
    """Return the distinct windows over which the script calls a model.

    If there are none, return one assumed window. A window has its number of elements and its number of new
    elements per slide.
    """
    uses = {str(window): _use(window, over) for window, over in _windows(name, catalog)}
    return list(uses.values()) or [WindowUse("assumed", _ASSUMED_SIZE, 1)]


def _windows(name: str, catalog: Catalog) -> Iterator[tuple[Window, bool]]:
    """Yield the window of each call of a model, and True if the call has an OVER clause."""
    for call, window, over in _calls(catalog):
        if call.lower() == name.lower():
            yield window, over


def _calls(catalog: Catalog) -> Iterator[tuple[str, Window, bool]]:
    """Yield the name and window of every aggregate call, and True if the call has an OVER clause."""
    for node in build_graph(catalog):
        operator = node.operator
        if isinstance(operator, WindowAggregate):
            yield from ((call.name, call.window, True) for call in operator.calls)
        elif isinstance(operator, RelationAggregate):
            for call in operator.calls:
                yield from ((call.name, window, False) for _, window in operator.windows)


def _use(window: Window, over: bool) -> WindowUse:
    rows = window.frame is FrameUnit.ROWS
    if rows and window.extent is not None:
        n = window.extent + over
        return WindowUse(str(window), n, min(window.slide or 1, n))
    share = window.slide / window.extent if window.slide and window.extent else 0.0
    d = min(max(1, round(_ASSUMED_SIZE * share)), _ASSUMED_SIZE)
    return WindowUse(f"{window}, if it has {_ASSUMED_SIZE} elements", _ASSUMED_SIZE, d)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [f"  {line}".rstrip() for line in lines]
