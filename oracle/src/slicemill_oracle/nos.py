"""Next-operator selection: transition library and states (M15-M18, M20).

A transition is an ordered list of rules with a fallback. `forward` applies if the operator has produced
output (yield), `encore` if it can process more input (more). If no rule applies, DFS and BFS backtrack and
apply the rules to the predecessor (X5), and RR exits. Backtracking ends at a source, which may send an
enabling timestamp. Otherwise control returns to the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from slicemill_oracle.buffers import Reader
from slicemill_oracle.graph import OperatorNode, SinkNode
from slicemill_oracle.metrics import IdleMeter
from slicemill_oracle.sources import ReferenceSource
from slicemill_oracle.tsm import NONE, SingleGate

Strategy = Literal["DFS", "BFS", "RR"]
Move = Literal["forward", "encore"]


@dataclass(frozen=True, slots=True)
class Transition:
    """Rules in the order in which they are tried. `backtracks` is True if backtracking follows."""

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
    """A unit of scheduling: operators between sources, break points and sinks."""

    __slots__ = ("dirty", "states")

    def __init__(self, states: list[State]) -> None:
        self.states = states
        self.dirty = True

    def entry(self) -> State | None:
        """Return the ready operator nearest to a sink.

        This way tuples leave the graph before new ones enter.
        """
        for state in self.states:
            if state.ready():
                return state
        self.dirty = False
        return None


class BoundArc:
    """An ETS arc with its register and the buffers that it bypasses."""

    __slots__ = ("path", "port", "target")

    def __init__(self, target: State, port: int, path: list[Reader]) -> None:
        self.target = target
        self.port = port
        self.path = path

    def value(self) -> int:
        """Return the current value of the register at the arc's end."""
        return self.target.node.gate.registers.values[self.port]

    def clear(self) -> bool:
        return not any(reader.unread for reader in self.path)


class BoundRow:
    """Target of backtracking: a state, a source, or none at a break point."""

    __slots__ = ("backtracks", "pred", "source")

    def __init__(self, pred: State | Fork | None, source: ReferenceSource | None, backtracks: bool) -> None:
        self.pred = pred
        self.source = source
        self.backtracks = backtracks


class Fork:
    """Runs its branches round-robin. Their shared buffer belongs to the producer (M20)."""

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
    """An operator as a state of the automaton, with bound rows.

    `ready` must test a state before the state is selected. `runs` is the result of the test, and `port` the
    input of the next step.
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
        """Return True if input is ready (`more`), or a register must be passed on (M23)."""
        only = self._only
        if only is not None:
            # fast path without the gate: half of all tests have a single input
            self.runs = only.unread > 0
            self.port = 0 if only.unread else NONE
            return self.runs
        self.port = port = self._more()
        self.runs = port >= 0 or (self.uses_arcs and self.node.gate.registers.must_pass())
        return self.runs


Rule = Callable[[State], State | None]


def forward(state: State) -> State | None:
    """Return the operator to run after an output, if any.

    This is the successor if a tuple waits there, else the operator whose register was just written.
    """
    succ = state.succ
    readers = state.succ_readers
    for reader in readers:
        if reader.unread and succ is not None:
            # The cycle enters a successor that is not ready, to backtrack to its other inputs.
            # If all its inputs come from this operator, backtracking would return here.
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
    """Return the rules of a transition. `fork` is True if the successor is a fork."""
    bound: dict[Move, Rule] = {"forward": forward_to_fork if fork else forward, "encore": encore}
    return tuple(bound[move] for move in transition.moves)


def _apply_rules(state: State) -> State | None:
    for rule in state.rules:
        following = rule(state)
        if following is not None:
            return following
    return None


def next_operator(state: State, ask: Callable[[ReferenceSource], State | None]) -> State | None:
    """Continuation step: return the next operator, None for the scheduler.

    Rules are applied immediately to an operator that is not ready, without executing it.
    """
    index: State | Fork = state
    while True:
        if isinstance(index, Fork):
            following = index.next()
            if following is not None:
                return following
            row = index.row
        else:
            following = _apply_rules(index)
            if following is not None:
                if following.runs:
                    return following
                index = following
                continue
            row = index.rows[index.node.gate.blocked() if len(index.rows) > 1 else 0]
        if not row.backtracks:
            return None
        if row.pred is None:
            return ask(row.source) if row.source is not None else None
        index = row.pred
