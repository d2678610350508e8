"""Next-operator selection: the transition library, and the states it moves between (M15-M18, M20).

A transition is an order of rules and what to do when none applies. `forward` is taken on yield, `encore` on
more; otherwise DFS and BFS backtrack, re-applying the rules on the predecessor (X5), and RR exits. At a
source the backtrack ends: it is asked for an enabling timestamp, or control goes back to the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from slicemill.reference.buffers import Reader
from slicemill.reference.graph import OperatorNode, SinkNode
from slicemill.reference.metrics import IdleMeter
from slicemill.reference.sources import ReferenceSource
from slicemill.reference.tsm import NONE, SingleGate

Strategy = Literal["DFS", "BFS", "RR"]
Move = Literal["forward", "encore"]


@dataclass(frozen=True, slots=True)
class Transition:
    """The rules to try in order; without `backtracks` control goes back to the scheduler after them."""

    moves: tuple[Move, ...]
    backtracks: bool


def _transitions() -> dict[str, Transition]:
    orders: dict[Strategy, tuple[tuple[Move, ...], bool]] = {
        "DFS": (("forward", "encore"), True),
        "BFS": (("encore", "forward"), True),
        "RR": (("encore", "forward"), False),
    }
    library = {}
    for strategy, (moves, backtracks) in orders.items():
        for kind in ("NOS", "Source"):
            library[f"{strategy}-{kind}"] = Transition(moves, backtracks)
        for kind in ("Sink", "Source-Sink"):
            library[f"{strategy}-{kind}"] = Transition(("encore",), backtracks)
        library[f"{strategy}-Fork"] = Transition(("forward",), backtracks)
    return library


TRANSITIONS: Final = _transitions()


class StateFragment:
    """What is scheduled together: a part of the graph between sources, break points and sinks."""

    __slots__ = ("dirty", "states")

    def __init__(self, states: list[State]) -> None:
        self.states = states
        self.dirty = True

    def entry(self) -> State | None:
        """Where to start: the ready operator nearest to a sink, so that tuples leave before others enter."""
        for state in self.states:
            if state.ready():
                return state
        self.dirty = False
        return None


class BoundArc:
    """An ETS arc with its register and the buffers it jumps over."""

    __slots__ = ("path", "port", "target")

    def __init__(self, target: State, port: int, path: list[Reader]) -> None:
        self.target = target
        self.port = port
        self.path = path

    def value(self) -> int:
        """What the register at the arc's end knows."""
        return self.target.node.gate.registers.values[self.port]

    def clear(self) -> bool:
        return not any(reader.unread for reader in self.path)


class BoundRow:
    """Where backtracking from one input leads: a state, a source, or (at a break point) neither."""

    __slots__ = ("backtracks", "pred", "source")

    def __init__(self, pred: State | Fork | None, source: ReferenceSource | None, backtracks: bool) -> None:
        self.pred = pred
        self.source = source
        self.backtracks = backtracks


class Fork:
    """Runs its branches round-robin; the buffer they share belongs to the node before it (M20)."""

    __slots__ = ("_turn", "branches", "row")

    def __init__(self, row: BoundRow) -> None:
        self.row = row
        self.branches: list[State] = []
        self._turn = 0

    def next(self) -> State | None:
        count = len(self.branches)
        for ahead in range(count):
            index = (self._turn + ahead) % count
            if self.branches[index].ready():
                self._turn = index + 1
                return self.branches[index]
        return None


class State:
    """An operator as a state of the automaton: the rows of the state table, bound to what they name.

    Whoever selects a state has tested it with `ready`. `runs` is the answer, and `port` the input that the
    next step takes from.
    """

    __slots__ = (
        "_more",
        "_only",
        "arcs",
        "fork",
        "fragment",
        "merges",
        "meters",
        "node",
        "port",
        "rows",
        "rules",
        "runs",
        "sinks",
        "succ",
        "succ_readers",
        "timed",
        "tsm_yield",
        "uses_arcs",
        "wakes",
    )

    def __init__(self, node: OperatorNode, uses_arcs: bool) -> None:
        self.node = node
        self.uses_arcs = uses_arcs
        self.timed = node.operator.waits_for_time
        self.merges = node.waits and len(node.inputs) > 1
        self.port = NONE
        self.runs = False
        self._more = node.gate.port
        self._only = node.readers[0] if isinstance(node.gate, SingleGate) else None
        self.rules: tuple[Rule, ...] = ()
        self.rows: list[BoundRow] = []
        self.succ: State | None = None
        self.succ_readers: list[Reader] = []
        self.fork: Fork | None = None
        self.tsm_yield: State | None = None
        self.fragment = StateFragment([])
        self.arcs: list[BoundArc] = []
        self.sinks: list[SinkNode] = []
        self.meters: list[IdleMeter] = []
        self.wakes: list[StateFragment] = []

    def ready(self) -> bool:
        """`more`, or a register whose value is still to be passed on (M23)."""
        only = self._only
        if only is not None:
            # The common case without the detour over the gate: half of all tests are of this kind.
            self.runs = only.unread > 0
            self.port = 0 if only.unread else NONE
            return self.runs
        self.port = port = self._more()
        self.runs = port >= 0 or (self.uses_arcs and self.node.gate.registers.must_pass())
        return self.runs


Rule = Callable[[State], State | None]


def forward(state: State) -> State | None:
    """The successor if a tuple waits there, else the operator whose register was just written."""
    succ = state.succ
    readers = state.succ_readers
    for reader in readers:
        if reader.unread and succ is not None:
            # One that cannot run is entered to backtrack to its other inputs; if those are ours as well, that
            # would lead straight back.
            if succ.ready() or len(readers) == 1:
                return succ
            break
    return _tsm_successor(state)


def forward_to_fork(state: State) -> State | None:
    branch = state.fork.next() if state.fork is not None else None
    return branch if branch is not None else _tsm_successor(state)


def encore(state: State) -> State | None:
    return state if state.ready() else None


def _tsm_successor(state: State) -> State | None:
    successor = state.tsm_yield
    if successor is not None:
        state.tsm_yield = None
        successor.ready()
    return successor


def rules_of(transition: Transition, fork: bool) -> tuple[Rule, ...]:
    """The rules of a transition for a state whose successor is, or is not, a fork."""
    bound: dict[Move, Rule] = {"forward": forward_to_fork if fork else forward, "encore": encore}
    return tuple(bound[move] for move in transition.moves)


def _apply_rules(state: State) -> State | None:
    for rule in state.rules:
        following = rule(state)
        if following is not None:
            return following
    return None


def next_operator(state: State, ask: Callable[[ReferenceSource], State | None]) -> State | None:
    """The continuation step: which operator is next; None gives control back to the scheduler.

    An operator that is reached but not ready is not executed in vain: the rules are applied on it at once.
    """
    place: State | Fork = state
    while True:
        if isinstance(place, Fork):
            following = place.next()
            if following is not None:
                return following
            row = place.row
        else:
            following = _apply_rules(place)
            if following is not None:
                if following.runs:
                    return following
                place = following
                continue
            row = place.rows[place.node.gate.blocked() if len(place.rows) > 1 else 0]
        if not row.backtracks:
            return None
        if row.pred is None:
            return ask(row.source) if row.source is not None else None
        place = row.pred
