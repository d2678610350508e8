"""Execution cycle: run one operator, then select the next (M15, M19, M22-M26).

Between two steps, due arrivals enter the source buffers, and the graph, its break points and strategies may
be changed. If no operator can run, operators that wait for time request an enabling timestamp from their
sources. A source that cannot send one yet is polled again at the time when it can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from slicemill.operators.row_step import InitialOutput
from slicemill.types import Timed
from slicemill_oracle.clock import Clock
from slicemill_oracle.ets import EtsMode, NoEts, OnDemand, Propagation
from slicemill_oracle.graph import Graph, OperatorNode
from slicemill_oracle.intake import ReferenceIntake, write
from slicemill_oracle.nos import State, StateFragment, next_operator
from slicemill_oracle.punctuation import BEGINNING, END, MARK, Item, punctuation
from slicemill_oracle.sources import Agenda
from slicemill_oracle.state_table import StrategyOf, bind

Choose = Callable[[Sequence[StateFragment]], StateFragment]
"""Scheduler, which chooses one of the fragments that may have work."""


class TraceStep(NamedTuple):
    """An execution step: time, operator, kind of item and its timestamp."""

    at: int
    state: str
    what: str
    ts: int


def round_robin() -> Choose:
    """Return a scheduler that chooses the fragments in turn."""
    last: list[StateFragment] = []

    def choose(fragments: Sequence[StateFragment]) -> StateFragment:
        chosen = fragments[0]
        if last and last[0] in fragments:
            chosen = fragments[(fragments.index(last[0]) + 1) % len(fragments)]
        last[:] = [chosen]
        return chosen

    return choose


class Cycle:
    """Runs a graph. `steps` counts execution steps, `trace` records them."""

    def __init__(
        self,
        graph: Graph,
        clock: Clock,
        random: Random,
        strategy_of: StrategyOf,
        ets: EtsMode,
        propagation: Propagation,
        choose: Choose,
        trace: list[TraceStep] | None,
    ) -> None:
        self._graph = graph
        self._clock = clock
        self._random = random
        self._strategy_of = strategy_of
        # Without enabling timestamps, an operator that emits nothing does not pass on time either.
        self._tells = not isinstance(ets, NoEts)
        self._uses_arcs = propagation == "arcs"
        self._choose = choose
        self._trace = trace
        self._current: State | None = None
        self._begun = False
        self.automaton = bind(graph, strategy_of, self._uses_arcs)
        self.intake = ReferenceIntake(
            graph, clock, self.automaton, isinstance(ets, OnDemand), self._uses_arcs
        )
        self.agenda = Agenda()
        self.steps = 0

    def rebind(self) -> None:
        """Rebuild the state table after changes of topology or strategies (M19)."""
        self.automaton = bind(self._graph, self._strategy_of, self._uses_arcs)
        self.intake.automaton = self.automaton
        self._current = None
        self._begun = False
        # A new consumer has not received the earlier enabling timestamps: send them again.
        for source in self._graph.sources.values():
            source.told = BEGINNING
        for node in self._graph.operators.values():
            node.promised = BEGINNING

    def run(self, until: int = END, max_steps: int | None = None) -> None:
        """Run until no work is left, the time is `until`, or `max_steps` steps are done."""
        if not self._begun:
            self._begin()
        last_step = END if max_steps is None else self.steps + max_steps
        clock = self._clock
        agenda = self.agenda
        ask = self.intake.ask
        to_the_end = until == END
        while True:
            now = clock.now()
            if now >= agenda.next_at and not (to_the_end and agenda.finished):
                agenda.fire_until(now)
            if now >= until or self.steps >= last_step:
                return
            state = self._current
            if state is not None:
                state = next_operator(state, ask)
            if state is None:
                state = self._schedule()
            self._current = state
            if state is not None:
                self._execute(state)
            elif not self._wait(until):
                return

    def _begin(self) -> None:
        """Emit the initial rows of operators that have any, once."""
        self._begun, now = True, self._clock.now()
        for state in [state for fragment in self.automaton.fragments for state in fragment.states]:
            if isinstance(state.node.operator, InitialOutput):
                self._emit(state, state.node.operator.begin(), now)
                state.fragment.dirty = True

    def _schedule(self) -> State | None:
        while fragments := [fragment for fragment in self.automaton.fragments if fragment.dirty]:
            fragment = fragments[0] if len(fragments) == 1 else self._choose(fragments)
            entry = fragment.entry()
            if entry is not None:
                return entry
        return None

    def _wait(self, until: int) -> bool:
        """Wait for the next event. Return False if there is none before `until`."""
        wake = self.intake.next_offer()
        if wake <= self._clock.now():
            return True
        if self.agenda.finished and until == END:
            # Heartbeats are endless, so they do not prevent termination.
            return False
        following = min(self.agenda.next_at, wake)
        if following > until or following == END:
            if until != END:
                self._clock.wait_until(until)
            return False
        self._clock.wait_until(following)
        return True

    def _execute(self, state: State) -> None:
        """Execution step.

        A state that is not ready is only used for backtracking.
        """
        port = state.port
        node = state.node
        if port < 0:
            if state.runs:
                self._record(node, "register", node.gate.registers.low())
                self._pass_time(state)
            return
        tuple_, arrival = node.readers[port].pop()
        if state.merges:
            node.meter.update(self._clock.now())
        if tuple_.row is MARK:
            self._record(node, "punctuation", tuple_.ts)
            self._take_punctuation(state, port, tuple_.ts)
            return
        self.steps += 1
        if self._trace is not None:
            self._trace.append(TraceStep(self._clock.now(), node.name, "data", tuple_.ts))
        operator = node.operator
        released: Sequence[Timed] = ()
        if state.timed:
            if tuple_.ts > node.advanced:
                node.advanced = tuple_.ts
                released = operator.advance(tuple_.ts)
            elif node.latent and tuple_.ts < node.advanced:
                # A latent tuple is stamped here, consistent with the processing order (M24).
                tuple_ = Timed(node.advanced, tuple_.row)
        produced = operator.process(port, tuple_)
        cost_us = node.cost.data_us
        self._clock.spend(cost_us if isinstance(cost_us, int) else cost_us(tuple_, self._random))
        if released:
            self._emit(state, released, node.last_arrival)
        node.last_arrival = arrival
        if produced:
            self._emit(state, produced, arrival)
        elif self._tells and node.waits:
            self._tell(state)

    def _take_punctuation(self, state: State, port: int, ts: int) -> None:
        node = state.node
        registers = node.gate.registers
        registers.raise_to(port, ts)
        if registers.low() < END:
            self._pass_time(state)
        elif not node.ended:
            node.ended = True
            self._clock.spend(node.cost.time_us)
            self._emit(state, node.operator.finish(), node.last_arrival)
            self._append(state, punctuation(END, self._clock.now()))

    def _pass_time(self, state: State) -> None:
        """Step without data: release waiting tuples and pass time on."""
        node = state.node
        registers = node.gate.registers
        low = registers.low()
        released: Sequence[Timed] = ()
        if node.operator.waits_for_time and low > node.advanced:
            node.advanced = low
            released = node.operator.advance(low)
        self._clock.spend(node.cost.time_us)
        registers.passed(low)
        if released:
            self._emit(state, released, node.last_arrival)
        self._tell(state)

    def _tell(self, state: State) -> None:
        """Pass time on to consumers after a step without output (X20, M23).

        The last value that was sent is not sent again. Output tuples do not update this value, because a
        filter may drop them.
        """
        node = state.node
        promise = node.promise()
        if promise <= node.promised:
            return
        node.promised = promise
        if state.uses_arcs and all(arc.clear() for arc in state.arcs):
            write(state.arcs, promise)
            state.tsm_yield = state.arcs[0].target if state.arcs else None
        else:
            # An ETS must not overtake tuples that are on the way to the register.
            self._append(state, punctuation(promise, self._clock.now()))

    def _emit(self, state: State, produced: Sequence[Timed], arrival: int) -> None:
        for tuple_ in produced:
            item = (tuple_, arrival)
            for sink in state.sinks:
                sink.take(item, self._clock.now())
            self._append(state, item)

    def _append(self, state: State, item: Item) -> None:
        state.node.output.append(item)
        for fragment in state.wakes:
            fragment.dirty = True
        for meter in state.meters:
            meter.update(self._clock.now())

    def _record(self, node: OperatorNode, what: str, ts: int) -> None:
        self.steps += 1
        if self._trace is not None:
            self._trace.append(TraceStep(self._clock.now(), node.name, what, ts))
