"""The two graphs of a model: blocking (C13, the paper's Fig. 1) and incremental (C15, Fig. 2).

    blocking      S, W(X) ─► M ─► F[oldest | rest] ─► T[f] ─► Ac[⊕] ─► T[g], and the rest back to W(X)
    incremental   what leaves is undone, what comes is added to the value that W(V) holds

With several cores the node ids of the second core and later ones end in its number, the values are merged in
order, and the last T gathers them.
"""

from __future__ import annotations

from slicemill.model.classify import Kind
from slicemill.model.core import Core
from slicemill.model.graphs.graph import Edge, Graph, Node, Op, Phase, Storage
from slicemill.model.model import Model
from slicemill.model.terms import ModelError, shown

_WORKING = {"storage": Storage.WORKING.value}


def blocking_graph(model: Model) -> Graph:
    """Everything again at each slide."""
    nodes = [
        Node("s", Op.S, label="new"),
        Node("wx", Op.W, _WORKING, "window"),
        Node("m", Op.M),
        Node("f", Op.F, {"oldest": "d"}, "oldest | rest"),
    ]
    edges = [
        Edge("wx", "m", dst_port=0, phase=Phase.SUCCESSIVE),
        Edge("s", "m", dst_port=1, phase=Phase.SUCCESSIVE),
        Edge("m", "f", phase=Phase.SUCCESSIVE),
        Edge("f", "wx", src_port=1, phase=Phase.SUCCESSIVE),
        Edge("s", "wx", phase=Phase.INITIAL),
    ]
    ends = []
    for number, core in enumerate(model.cores):
        t, ac = _named("t", number), _named("ac", number)
        nodes += [_transform(t, core, number), _accumulator(ac, core, number)]
        edges += [
            Edge("s", t, phase=Phase.INITIAL),
            Edge("f", t, src_port=1, phase=Phase.SUCCESSIVE),
            Edge(t, ac),
        ]
        ends.append(ac)
    return _finished(model, nodes, edges, ends, lower=False)


def window_loop() -> tuple[list[Node], list[Edge]]:
    """What slides: the oldest elements leave the window and the new ones join the rest."""
    nodes = [
        Node("s", Op.S, label="new"),
        Node("wx", Op.W, _WORKING, "window"),
        Node("f", Op.F, {"oldest": "d"}, "oldest | rest"),
        Node("m1", Op.M),
    ]
    edges = [
        Edge("wx", "f", phase=Phase.SUCCESSIVE),
        Edge("f", "m1", src_port=1, dst_port=0, phase=Phase.SUCCESSIVE),
        Edge("s", "m1", dst_port=1),
        Edge("m1", "wx"),
    ]
    return nodes, edges


def incremental_graph(model: Model) -> Graph:
    """The loop of C15 for each core. A model in which some core is not INCREMENTAL has none."""
    for core, found in zip(model.cores, model.classes, strict=True):
        if found.kind is not Kind.INCREMENTAL or core.weight is not None:
            raise ModelError(f"{core} has no incremental graph: {found.reason}")
    if not model.cores:
        raise ModelError(f"{model.text} looks at no element: there is nothing to keep")
    nodes, edges = window_loop()
    ends = []
    for number, core in enumerate(model.cores):
        more_nodes, more_edges = _loop(core, number)
        nodes += more_nodes
        edges += more_edges
        ends.append(_named("ac", number))
    return _finished(model, nodes, edges, ends, lower=True)


def _loop(core: Core, number: int) -> tuple[list[Node], list[Edge]]:
    to, tn, ti, m2, m3, ac, wv = (_named(name, number) for name in ("to", "tn", "ti", "m2", "m3", "ac", "wv"))
    nodes = [
        _transform(to, core, number, lift=True),
        _transform(tn, core, number, lift=True),
        Node(ti, Op.T, {"inverse": core.aggregate}, "inverse", number),
        Node(m2, Op.M, core=number),
        Node(m3, Op.M, core=number),
        Node(ac, Op.AC, {"op": core.aggregate, "lifted": True}, _symbol(core), number),
        Node(wv, Op.W, _WORKING, "value", number),
    ]
    later = Phase.SUCCESSIVE
    edges = [
        Edge("f", to, src_port=0, phase=later),
        Edge("s", tn),
        Edge(to, ti, phase=later),
        Edge(ti, m2, dst_port=0, phase=later),
        Edge(tn, m2, dst_port=1),
        Edge(m2, m3, dst_port=0),
        Edge(wv, m3, dst_port=1, phase=later),
        Edge(m3, ac),
        Edge(ac, wv),
    ]
    return nodes, edges


def _finished(model: Model, nodes: list[Node], edges: list[Edge], ends: list[str], lower: bool) -> Graph:
    """The values of the cores merged, and T[g] over them."""
    last = ends[0] if ends else "s"
    for number, end in enumerate(ends[1:], start=1):
        merged = f"mv{number}"
        nodes.append(Node(merged, Op.M))
        edges += [Edge(last, merged, dst_port=0), Edge(end, merged, dst_port=1)]
        last = merged
    names = [f"c{number}" for number in range(len(ends))]
    params: dict[str, object] = {"f": shown(model.result), "gather": names}
    if lower:
        params["lower"] = [core.aggregate for core in model.cores]
    nodes.append(Node("g", Op.T, params, model.finalisation))
    edges.append(Edge(last, "g"))
    return Graph(tuple(nodes), tuple(edges), "g", model.parameters or ("x",))


def _named(name: str, number: int) -> str:
    return name if number == 0 else f"{name}_{number}"


def _symbol(core: Core) -> str:
    return core.aggregate if core.accumulator is None else core.accumulator.symbol


def _transform(name: str, core: Core, number: int, lift: bool = False) -> Node:
    text = shown(core.argument)
    params: dict[str, object] = {"f": text}
    if lift:
        params["lift"] = core.aggregate
    if core.weight is not None or core.blocked:
        params["positional"] = True
    return Node(name, Op.T, params, text, number)


def _accumulator(name: str, core: Core, number: int) -> Node:
    if core.accumulator is not None:
        return Node(name, Op.AC, {"op": core.aggregate}, _symbol(core), number)
    options = [str(option) for option in core.options]
    return Node(name, Op.A, {"search": core.aggregate, "options": options}, core.aggregate, number)
