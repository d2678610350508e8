"""Construction of a model's dataflow graphs: blocking (C13), incremental (C15, Fig. 2) and as executed.

A core statistic (`Core`) is a sum, count or extreme over the window from which a model's result is computed.
The blocking graph recomputes each core statistic from the whole window at each slide. The incremental graph
updates it from expired and new elements only.

    blocking      S, W(X) ─► M ─► F[oldest | rest] ─► T[f] ─► Ac[⊕] ─► T[g], and the rest back to W(X)
    incremental   expired elements are subtracted from, new ones added to the value in W(V)

Operators have letters: S reads new elements, F splits off the oldest elements, M appends vectors, T
transforms elements, Ac accumulates, A searches, P permutes, and W stores the window X or a value V until the
next slide. Node ids of the second and later core statistics end in an index. M nodes append the values of all
core statistics, and the last T computes the result. A T of its own computes each `let` value, and passes it
to each core statistic that needs the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from slicemill.extensions.models.cores import Classification, Core, CoreKind, CoreMethod
from slicemill.extensions.models.flow import Flow, FlowInput, FlowStep, flow, in_letters
from slicemill.extensions.models.graph import InstancePhase, ModelEdge, ModelGraph, ModelNode, Op, Storage
from slicemill.extensions.models.model import Model
from slicemill.extensions.models.operators import ACCUMULATORS, SEARCHES
from slicemill.extensions.models.parse import parse
from slicemill.extensions.models.rules import compose
from slicemill.extensions.models.terms import Expr, ModelError, Symbol, expression_text, replace_parts, walk

_WORKING = {"storage": Storage.WORKING.value}
_LATER = InstancePhase.SUCCESSIVE


def blocking_graph(model: Model) -> ModelGraph:
    """Build the graph that recomputes a model's result from the whole window at each slide."""
    nodes = [
        ModelNode("s", Op.S, label="new"),
        ModelNode("wx", Op.W, _WORKING, "window"),
        ModelNode("m", Op.M),
        ModelNode("f", Op.F, {"oldest": "d"}, "oldest | rest"),
    ]
    edges = [
        ModelEdge("wx", "m", dst_port=0, phase=InstancePhase.SUCCESSIVE),
        ModelEdge("s", "m", dst_port=1, phase=InstancePhase.SUCCESSIVE),
        ModelEdge("m", "f", phase=InstancePhase.SUCCESSIVE),
        ModelEdge("f", "wx", src_port=1, phase=InstancePhase.SUCCESSIVE),
        ModelEdge("s", "wx", phase=InstancePhase.INITIAL),
    ]
    ends = []
    for number, core in enumerate(model.cores):
        if in_letters(core.aggregate):
            more_nodes, more_edges, end = flow_nodes(
                core, number, [("s", 0, InstancePhase.INITIAL), ("f", 1, _LATER)]
            )
            nodes, edges = [*nodes, *more_nodes], [*edges, *more_edges]
            ends.append(end)
            continue
        t, ac = core_node_id("t", number), core_node_id("ac", number)
        nodes += [ModelNode(t, Op.T, *transform(model, core), number), _accumulator(ac, core, number)]
        edges += [
            ModelEdge("s", t, phase=InstancePhase.INITIAL),
            ModelEdge("f", t, src_port=1, phase=InstancePhase.SUCCESSIVE),
            ModelEdge(t, ac),
        ]
        ends.append(ac)
    more_nodes, more_edges = let_values(model, ends, "t")
    return finish_graph(model, [*nodes, *more_nodes], [*edges, *more_edges], ends, lower=False)


def flow_nodes(
    core: Core, number: int, window: Sequence[tuple[str, int, InstancePhase]]
) -> tuple[list[ModelNode], list[ModelEdge], str]:
    """Build the graph nodes of a core statistic in operator letters, such as Ac[+] · T[x^2]: one per letter.

    `window` lists the nodes and ports that output the window, with their phases. Return nodes, edges, and the
    id of the last node.
    """
    nodes: list[ModelNode] = []
    edges: list[ModelEdge] = []
    element = core.transform

    def add(of: Flow) -> list[tuple[str, int, InstancePhase]]:
        if isinstance(of, FlowInput):
            return list(window)
        inputs = [add(inner) for inner in of.inputs]
        name = core_node_id("ac", number) if of is whole else f"{of.op.lower()}{number}_{len(nodes)}"
        nodes.append(ModelNode(name, of.op, _params(of, element), of.text, number))
        for port, sources in enumerate(inputs):
            edges.extend(ModelEdge(src, name, index, port, phase) for src, index, phase in sources)
        return [(name, int(of.op is Op.F and of.text.startswith("rest ")), InstancePhase.BOTH)]

    whole = flow(core.aggregate)
    ((end, _, _),) = add(whole)
    return nodes, edges, end


def _params(of: FlowStep, element: Expr) -> dict[str, object]:
    """Return the parameters of the graph node for one operator letter, such as the function of T[x^2].

    In functions, x is replaced by `element`, an expression of the model's columns.
    """
    word, _, argument = of.text.partition(" ")

    def of_element(function: Expr) -> str:
        return expression_text(compose(function, element))

    match of.op:
        case Op.T:
            return {"fs": [of_element(function) for function in of.functions], "tail": True}
        case Op.AC:
            return {"op": next(name for name, known in ACCUMULATORS.items() if known.symbol == of.text)}
        case Op.A if of.text in SEARCHES:
            return {"search": of.text, "options": [], "optional": True}
        case Op.A:
            return {"where": of_element(parse(argument)), "first": word == "first"}
        case Op.F if word == "where":
            return {"where": [of_element(parse(argument))]}
        case Op.F:
            return {"oldest": int(argument)}
        case Op.P:
            return {"order": of.text}
    return {}


def window_loop() -> tuple[list[ModelNode], list[ModelEdge]]:
    """Build the graph nodes that maintain the window: remove the oldest elements, append new ones."""
    nodes = [
        ModelNode("s", Op.S, label="new"),
        ModelNode("wx", Op.W, _WORKING, "window"),
        ModelNode("f", Op.F, {"oldest": "d"}, "oldest | rest"),
        ModelNode("m1", Op.M),
    ]
    edges = [
        ModelEdge("wx", "f", phase=InstancePhase.SUCCESSIVE),
        ModelEdge("f", "m1", src_port=1, dst_port=0, phase=InstancePhase.SUCCESSIVE),
        ModelEdge("s", "m1", dst_port=1),
        ModelEdge("m1", "wx"),
    ]
    return nodes, edges


def incremental_graph(model: Model) -> ModelGraph:
    """Build the graph that updates a model's result from expired and new elements only (C15).

    Raise an error if some core statistic is not of the class INCREMENTAL.
    """
    for core, class_ in zip(model.cores, model.classes, strict=True):
        if class_.kind is not CoreKind.INCREMENTAL or core.weight is not None:
            raise ModelError(f"{core} has no incremental graph: {class_.reason}")
    if not model.cores:
        raise ModelError(f"{model.text} reads no element of the window: there is nothing to update")
    nodes, edges = window_loop()
    ends = []
    for number, core in enumerate(model.cores):
        more_nodes, more_edges = _loop(model, core, number)
        nodes += more_nodes
        edges += more_edges
        ends.append(core_node_id("ac", number))
    return finish_graph(model, nodes, edges, ends, lower=True)


def _loop(model: Model, core: Core, number: int) -> tuple[list[ModelNode], list[ModelEdge]]:
    to, tn, ti, m2, m3, ac, wv = (
        core_node_id(name, number) for name in ("to", "tn", "ti", "m2", "m3", "ac", "wv")
    )
    params, text = transform(model, core)
    nodes = [
        ModelNode(to, Op.T, {**params, "lift": core.aggregate}, text, number),
        ModelNode(tn, Op.T, {**params, "lift": core.aggregate}, text, number),
        ModelNode(ti, Op.T, {"inverse": core.aggregate}, "inverse", number),
        ModelNode(m2, Op.M, core=number),
        ModelNode(m3, Op.M, core=number),
        ModelNode(ac, Op.AC, {"op": core.aggregate, "lifted": True}, _symbol(core), number),
        ModelNode(wv, Op.W, _WORKING, "value", number),
    ]
    later = InstancePhase.SUCCESSIVE
    edges = [
        ModelEdge("f", to, src_port=0, phase=later),
        ModelEdge("s", tn),
        ModelEdge(to, ti, phase=later),
        ModelEdge(ti, m2, dst_port=0, phase=later),
        ModelEdge(tn, m2, dst_port=1),
        ModelEdge(m2, m3, dst_port=0),
        ModelEdge(wv, m3, dst_port=1, phase=later),
        ModelEdge(m3, ac),
        ModelEdge(ac, wv),
    ]
    return nodes, edges


def finish_graph(
    model: Model, nodes: list[ModelNode], edges: list[ModelEdge], ends: Sequence[str], *, lower: bool
) -> ModelGraph:
    """Complete a graph with the nodes that compute the model's result from all core statistics.

    `ends` are the ids of the nodes that output the core statistics.
    """
    more_nodes, more_edges, last = _merge_values(ends, "mv")
    names = [f"c{number}" for number in range(len(ends))]
    params: dict[str, object] = {"f": expression_text(model.result), "gather": names}
    if lower:
        params["lower"] = [core.aggregate for core in model.cores]
    result = ModelNode("g", Op.T, params, model.finalisation)
    edges = [*edges, *more_edges, ModelEdge(last, "g")]
    return ModelGraph((*nodes, *more_nodes, result), tuple(edges), "g", model.parameters or ("x",))


def let_values(model: Model, ends: Sequence[str], reader: str) -> tuple[list[ModelNode], list[ModelEdge]]:
    """Build a graph node for each `let` value of a model that is computed from core statistics.

    `ends` are the ids of the nodes that output the core statistics. `reader` is the name of the nodes that
    transform elements and may need `let` values.
    """
    nodes: list[ModelNode] = []
    edges: list[ModelEdge] = []
    for name, value in model.lets:
        gathered = _cores_in(value, len(ends))
        if not gathered:
            continue  # a constant `let` value is written into the expressions that use it
        let = f"let_{name}"
        more_nodes, more_edges, last = _merge_values([ends[number] for number in gathered], f"m_{name}")
        params = {"f": expression_text(value), "gather": [f"c{number}" for number in gathered]}
        nodes += [*more_nodes, ModelNode(let, Op.T, params, f"{name} = {model.core_text(value)}")]
        edges += [*more_edges, ModelEdge(last, let)]
        for number, core in enumerate(model.cores):
            scalars = _scalars(model, core)
            if name in scalars:
                edges.append(ModelEdge(let, core_node_id(reader, number), dst_port=1 + scalars.index(name)))
    return nodes, edges


def transform(model: Model, core: Core) -> tuple[dict[str, object], str]:
    """Return the parameters and the label of the node that transforms elements for a core statistic."""
    constants = {name: value for name, value in model.lets if not _cores_in(value, len(model.cores))}
    text = expression_text(
        replace_parts(core.argument, lambda e: constants.get(e.name) if isinstance(e, Symbol) else None)
    )
    params: dict[str, object] = {"f": text}
    if core.weight is not None or core.blocked:
        params["positional"] = True
    if scalars := _scalars(model, core):
        params["scalars"] = scalars
    return params, text


def _scalars(model: Model, core: Core) -> list[str]:
    """Return the names of the `let` values that a core statistic needs from other core statistics."""
    lets = dict(model.lets)
    return [name for name in core.scalars if _cores_in(lets[name], len(model.cores))]


def _cores_in(value: Expr, count: int) -> list[int]:
    used = {part.name for part in walk(value) if isinstance(part, Symbol)}
    return [number for number in range(count) if f"c{number}" in used]


def _merge_values(ends: Sequence[str], prefix: str) -> tuple[list[ModelNode], list[ModelEdge], str]:
    """Build the nodes that append the values of several nodes to one vector.

    Return nodes, edges, and the id of the node with the vector. Without values, it is the source "s".
    """
    nodes: list[ModelNode] = []
    edges: list[ModelEdge] = []
    last = ends[0] if ends else "s"
    for number, end in enumerate(ends[1:], start=1):
        merged = f"{prefix}{number}"
        nodes.append(ModelNode(merged, Op.M))
        edges += [ModelEdge(last, merged, dst_port=0), ModelEdge(end, merged, dst_port=1)]
        last = merged
    return nodes, edges, last


def core_node_id(name: str, number: int) -> str:
    """Return the id of a graph node: its name, and from the second core statistic on an index."""
    return name if number == 0 else f"{name}_{number}"


def _symbol(core: Core) -> str:
    return core.aggregate if core.accumulator is None else core.accumulator.symbol


def _accumulator(name: str, core: Core, number: int) -> ModelNode:
    if core.accumulator is not None:
        return ModelNode(name, Op.AC, {"op": core.aggregate}, _symbol(core), number)
    options = [str(option) for option in core.options]
    return ModelNode(name, Op.A, {"search": core.aggregate, "options": options}, core.aggregate, number)


def execution_graph(model: Model) -> ModelGraph:
    """Build the graph of a model as executed: core statistics are updated by their methods.

    The method (C14, C15, C17, C21) depends on the class of the core statistic. W(V) is its stored state.

        INCREMENTAL         subtract expired elements from the value in W(V), and add new elements
        SHIFT_INCREMENTAL   shift the weights of the sums in W(V), then subtract and add elements
        TWO_STACK           replace the oldest partial aggregates in W(V), and combine all of them (Ac)
        AUX_MEMORY          remove expired candidates from W(V), add new ones, and search for the best (A)
        BLOCKING            transform and accumulate the whole window (T, Ac)

    If all core statistics are INCREMENTAL, this is the graph of `incremental_graph`.
    """
    nodes, edges = window_loop()
    ends = []
    for number, (core, class_) in enumerate(zip(model.cores, model.classes, strict=True)):
        end = core_node_id("ac", number)
        if in_letters(core.aggregate):
            more_nodes, more_edges, end = flow_nodes(core, number, [("m1", 0, InstancePhase.BOTH)])
        else:
            more_nodes, more_edges = _core(model, core, class_, number)
        nodes += more_nodes
        edges += more_edges
        ends.append(end)
    more_nodes, more_edges = let_values(model, ends, "tn")
    return finish_graph(model, [*nodes, *more_nodes], [*edges, *more_edges], ends, lower=False)


def _core(
    model: Model, core: Core, class_: Classification, number: int
) -> tuple[list[ModelNode], list[ModelEdge]]:
    params, text = transform(model, core)
    names = ("to", "tn", "ti", "ts", "fv", "m2", "m3", "ac", "wv")
    to, tn, ti, ts, fv, m2, m3, ac, wv = (core_node_id(name, number) for name in names)
    new = ModelNode(tn, Op.T, params, text, number)
    store = ModelNode(wv, Op.W, _WORKING, class_.state_text, number)
    end = _end(core, ac, number)
    if class_.way is CoreMethod.RECOMPUTE:
        return [new, end], _chain(("m1", tn, ac))
    if class_.way is CoreMethod.DELTA:
        nodes = [
            ModelNode(to, Op.T, params, text, number),
            new,
            ModelNode(ti, Op.T, {"inverse": core.aggregate}, "inverse", number),
            ModelNode(m2, Op.M, core=number),
            ModelNode(m3, Op.M, core=number),
            end,
            store,
        ]
        edges = [
            ModelEdge("f", to, src_port=0, phase=_LATER),
            ModelEdge("s", tn),
            ModelEdge(to, ti, phase=_LATER),
            ModelEdge(ti, m2, dst_port=0, phase=_LATER),
            ModelEdge(tn, m2, dst_port=1),
            ModelEdge(m2, m3, dst_port=0),
            *_chain((m3, ac, wv)),
        ]
        if class_.kind is CoreKind.INCREMENTAL and core.weight is None:
            return nodes, [*edges, ModelEdge(wv, m3, dst_port=1, phase=_LATER)]
        shift = ModelNode(ts, Op.T, {"f": "shift"}, "shift", number)
        return [*nodes, shift], [
            *edges,
            ModelEdge(wv, ts, phase=_LATER),
            ModelEdge(ts, m3, dst_port=1, phase=_LATER),
        ]
    nodes = [
        new,
        ModelNode(fv, Op.F, {"oldest": "d"}, "left | rest", number),
        ModelNode(m2, Op.M, core=number),
    ]
    edges = [
        ModelEdge(wv, fv, phase=_LATER),
        ModelEdge(fv, m2, src_port=1, dst_port=0, phase=_LATER),
        ModelEdge("s", tn),
        ModelEdge(tn, m2, dst_port=1),
        ModelEdge(m2, wv),
        ModelEdge(m2, ac),
    ]
    return [*nodes, end, store], edges


def _chain(names: Sequence[str]) -> list[ModelEdge]:
    return [ModelEdge(src, dst) for src, dst in pairwise(names)]


def _end(core: Core, name: str, number: int) -> ModelNode:
    if core.accumulator is not None:
        return ModelNode(name, Op.AC, {"op": core.aggregate}, core.accumulator.symbol, number)
    options = [str(option) for option in core.options]
    return ModelNode(name, Op.A, {"search": core.aggregate, "options": options}, core.aggregate, number)
