"""State table of the execution automaton: (state, pred, succ, transition) (M18-M20).

States are operators, and one fork per buffer with several readers. A row's transition names a macro of
the NOS library. An operator with several inputs has a row per producer, a fork a row per branch. `bind`
makes the table executable. It is called after every change of topology or strategy and does not touch
buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from slicemill_oracle.eqg import ets_arcs, reachable_arcs
from slicemill_oracle.graph import Graph, OperatorNode, SinkNode, Topology
from slicemill_oracle.metrics import IdleMeter
from slicemill_oracle.nos import (
    TRANSITIONS,
    BoundArc,
    BoundRow,
    Fork,
    State,
    StateFragment,
    Strategy,
    rules_of,
)

StrategyOf = Callable[[str], Strategy]


@dataclass(frozen=True, slots=True)
class StateRow:
    """A row of the table.

    `pred` is None for a source or break point before the state, `succ` is None for a sink or break point
    after it.
    """

    state: str
    pred: str | None
    succ: str | None
    transition: str


def is_cut(topology: Topology, strategy_of: StrategyOf, producer: str, consumer: str) -> bool:
    """Return True if the arc is a break point.

    Users set break points. RR needs a break point before each merge, because it schedules only paths (M16).
    """
    merges_under_rr = len(topology.operators[consumer]) > 1 and strategy_of(consumer) == "RR"
    return merges_under_rr or (producer, consumer) in topology.breaks


def branches(topology: Topology, strategy_of: StrategyOf, producer: str) -> list[str]:
    """Return the consumers that are scheduled together with their producer."""
    return [
        name for name in topology.consumers(producer) if not is_cut(topology, strategy_of, producer, name)
    ]


def fork_names(topology: Topology, strategy_of: StrategyOf) -> dict[str, str]:
    """Name the forks after nodes with several readers: fork, fork2, fork3."""
    producers = [*topology.sources, *topology.operators]
    forked = [name for name in producers if len(branches(topology, strategy_of, name)) > 1]
    return {name: "fork" if not index else f"fork{index + 1}" for index, name in enumerate(forked)}


def state_table(topology: Topology, strategy_of: StrategyOf) -> list[StateRow]:
    """Return all rows, producers before consumers."""
    forks = fork_names(topology, strategy_of)
    rows = []
    for source in topology.sources:
        if source in forks:
            rows += _fork_rows(topology, strategy_of, source, forks, None)
    for name in topology.operators:
        rows += _operator_rows(topology, strategy_of, name, forks)
        if name in forks:
            rows += _fork_rows(topology, strategy_of, name, forks, name)
    return rows


def predecessor(
    topology: Topology, strategy_of: StrategyOf, forks: dict[str, str], producer: str, consumer: str
) -> str | None:
    """Return the state to backtrack to from `consumer` over this arc."""
    if is_cut(topology, strategy_of, producer, consumer):
        return None
    if producer in forks:
        return forks[producer]
    return producer if producer in topology.operators else None


def _operator_rows(
    topology: Topology, strategy_of: StrategyOf, name: str, forks: dict[str, str]
) -> list[StateRow]:
    following = branches(topology, strategy_of, name)
    succ = forks.get(name) or next(iter(following), None)
    rows: dict[StateRow, None] = {}
    for producer in topology.operators[name]:
        pred = predecessor(topology, strategy_of, forks, producer, name)
        kind = "-".join(part for part, there in (("Source", pred), ("Sink", succ)) if there is None) or "NOS"
        rows[StateRow(name, pred, succ, f"{strategy_of(name)}-{kind}")] = None
    return list(rows)


def _fork_rows(
    topology: Topology, strategy_of: StrategyOf, producer: str, forks: dict[str, str], pred: str | None
) -> list[StateRow]:
    following = branches(topology, strategy_of, producer)
    strategy = strategy_of(pred or following[0])
    return [StateRow(forks[producer], pred, branch, f"{strategy}-Fork") for branch in following]


@dataclass(slots=True)
class Inlet:
    """Targets of a source: operators, sinks and all reachable registers."""

    states: list[State]
    fragments: list[StateFragment]
    sinks: list[SinkNode]
    meters: list[IdleMeter]
    arcs: list[BoundArc] = field(default_factory=list)
    reached: list[BoundArc] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Automaton:
    """The bound state table."""

    table: list[StateRow]
    fragments: list[StateFragment]
    inlets: dict[str, Inlet]
    waiters: list[OperatorNode]


def bind(graph: Graph, strategy_of: StrategyOf, uses_arcs: bool) -> Automaton:
    """Create states, fragments and inlets for the current graph."""
    topology = graph.topology()
    table = state_table(topology, strategy_of)
    timed = {n.name for n in graph.operators.values() if n.waits or len(n.inputs) > 1}
    states = {name: State(graph.operators[name], uses_arcs and name in timed) for name in topology.operators}
    _bind_rows(graph, topology, strategy_of, table, states)
    fragments = _bind_fragments(topology, strategy_of, states)
    inlets = {name: _inlet(graph, topology, name, states) for name in graph.sources}
    for name, state in states.items():
        state.sinks = graph.sinks_of(name)
        state.meters = _meters(topology, name, states)
        cut = [states[c] for c in topology.consumers(name) if is_cut(topology, strategy_of, name, c)]
        state.wakes = [consumer.fragment for consumer in cut]
    _bind_arcs(graph, topology, timed, states, inlets)
    waiters = [node for node in graph.operators.values() if node.waits]
    return Automaton(table, fragments, inlets, waiters)


def _bind_rows(
    graph: Graph,
    topology: Topology,
    strategy_of: StrategyOf,
    table: list[StateRow],
    states: dict[str, State],
) -> None:
    forks = fork_names(topology, strategy_of)
    indices: dict[str, State | Fork] = dict(states)
    for row in table:
        if row.state in states:
            continue
        if row.state not in indices:
            (producer,) = (name for name, fork in forks.items() if fork == row.state)
            pred = None if row.pred is None else states[row.pred]
            backtracks = TRANSITIONS[row.transition].backtracks
            indices[row.state] = Fork(BoundRow(pred, graph.sources.get(producer), backtracks))
    for row in table:
        transition = TRANSITIONS[row.transition]
        index = indices[row.state]
        succ = None if row.succ is None else indices[row.succ]
        if isinstance(index, Fork):
            index.branches.append(states[row.succ or ""])
            continue
        index.rules = rules_of(transition, isinstance(succ, Fork))
        if isinstance(succ, Fork):
            index.fork = succ
        elif succ is not None:
            index.succ = succ
            ports = [p for p, name in enumerate(succ.node.inputs) if name == row.state]
            index.succ_readers = [succ.node.readers[port] for port in ports]
    for name, state in states.items():
        backtracks = strategy_of(name) != "RR"
        for producer in state.node.inputs:
            pred_name = predecessor(topology, strategy_of, forks, producer, name)
            back = None if pred_name is None else indices[pred_name]
            state.rows.append(BoundRow(back, graph.sources.get(producer), backtracks))


def _bind_fragments(
    topology: Topology, strategy_of: StrategyOf, states: dict[str, State]
) -> list[StateFragment]:
    """Group operators joined by uncut arcs or sources, sinks first."""
    part = {name: name for name in [*topology.sources, *states]}

    def root(name: str) -> str:
        while part[name] != name:
            name = part[name]
        return name

    for name, inputs in topology.operators.items():
        for producer in inputs:
            if not is_cut(topology, strategy_of, producer, name):
                part[root(name)] = root(producer)
    members: dict[str, list[State]] = {}
    for name in states:
        members.setdefault(root(name), []).append(states[name])
    fragments = [StateFragment(group[::-1]) for group in members.values()]
    for fragment in fragments:
        for state in fragment.states:
            state.fragment = fragment
    return fragments


def _meters(topology: Topology, producer: str, states: dict[str, State]) -> list[IdleMeter]:
    consumers = [states[name] for name in topology.consumers(producer)]
    return [state.node.meter for state in consumers if state.merges]


def _inlet(graph: Graph, topology: Topology, source: str, states: dict[str, State]) -> Inlet:
    consumers = [states[name] for name in topology.consumers(source)]
    fragments = list(dict.fromkeys(state.fragment for state in consumers))
    return Inlet(consumers, fragments, graph.sinks_of(source), _meters(topology, source, states))


def _bind_arcs(
    graph: Graph,
    topology: Topology,
    timed: set[str],
    states: dict[str, State],
    inlets: dict[str, Inlet],
) -> None:
    arcs = ets_arcs(topology, timed)
    bound = {}
    for arc in arcs:
        path = [graph.operators[name].readers[port] for name, port in arc.path]
        bound[arc] = BoundArc(states[arc.target], arc.port, path)
        (inlets[arc.origin].arcs if arc.origin in inlets else states[arc.origin].arcs).append(bound[arc])
    for name, inlet in inlets.items():
        inlet.reached = [bound[arc] for arc in reachable_arcs(name, arcs)]
