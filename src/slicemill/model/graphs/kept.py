"""Graph of a model as executed: one method per core (C14, C15, C17, C21).

    INCREMENTAL         expired elements are subtracted from, new ones added to W(V)
    SHIFT_INCREMENTAL   the same, after a shift of W(V)
    TWO_STACK           W(V) has partial aggregates: the oldest expire, new ones arrive, Ac over all
    AUX_MEMORY          W(V) has candidates: expired ones are removed, new ones arrive, A finds the best
    BLOCKING            T and Ac over the whole window

If all cores are INCREMENTAL, this is the incremental graph of `canonical`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from slicemill.model.classify import Classification, CoreKind, CoreMethod
from slicemill.model.core import Core
from slicemill.model.flow import in_letters
from slicemill.model.graphs.canonical import finished, flow_nodes, let_values, named, transform, window_loop
from slicemill.model.graphs.graph import InstancePhase, ModelEdge, ModelGraph, ModelNode, Op, Storage
from slicemill.model.model import Model

_WORKING = {"storage": Storage.WORKING.value}
_LATER = InstancePhase.SUCCESSIVE


def kept_graph(model: Model) -> ModelGraph:
    nodes, edges = window_loop()
    ends = []
    for number, (core, found) in enumerate(zip(model.cores, model.classes, strict=True)):
        end = named("ac", number)
        if in_letters(core.aggregate):
            more_nodes, more_edges, end = flow_nodes(core, number, [("m1", 0, InstancePhase.BOTH)])
        else:
            more_nodes, more_edges = _core(model, core, found, number)
        nodes += more_nodes
        edges += more_edges
        ends.append(end)
    more_nodes, more_edges = let_values(model, ends, "tn")
    return finished(model, [*nodes, *more_nodes], [*edges, *more_edges], ends, lower=False)


def _core(
    model: Model, core: Core, found: Classification, number: int
) -> tuple[list[ModelNode], list[ModelEdge]]:
    params, text = transform(model, core)
    names = ("to", "tn", "ti", "ts", "fv", "m2", "m3", "ac", "wv")
    to, tn, ti, ts, fv, m2, m3, ac, wv = (named(name, number) for name in names)
    coming = ModelNode(tn, Op.T, params, text, number)
    store = ModelNode(wv, Op.W, _WORKING, found.state_text, number)
    end = _end(core, ac, number)
    if found.way is CoreMethod.RECOMPUTE:
        return [coming, end], _chain(("m1", tn, ac))
    if found.way is CoreMethod.DELTA:
        nodes = [
            ModelNode(to, Op.T, params, text, number),
            coming,
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
        if found.kind is CoreKind.INCREMENTAL and core.weight is None:
            return nodes, [*edges, ModelEdge(wv, m3, dst_port=1, phase=_LATER)]
        shift = ModelNode(ts, Op.T, {"f": "shift"}, "shift", number)
        return [*nodes, shift], [
            *edges,
            ModelEdge(wv, ts, phase=_LATER),
            ModelEdge(ts, m3, dst_port=1, phase=_LATER),
        ]
    nodes = [
        coming,
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
