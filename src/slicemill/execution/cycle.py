"""The two-step execution cycle: run one operator on one tuple, then select the next (M15, M19, M22-M26).

Between two steps the world outside moves on: arrivals that are due enter the source buffers, and the graph,
its break points and its strategies may be changed. When no operator can run, operators that wait for time may
ask the sources they depend on for an enabling timestamp; a source that cannot yet give it is asked again when
it can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from slicemill.execution.clock import Clock
from slicemill.execution.ets import Propagation
from slicemill.execution.graph import Graph, OperatorNode
from slicemill.execution.nos import BoundArc, Fragment, State, next_operator
from slicemill.execution.operator import Timed
from slicemill.execution.punctuation import BEGINNING, END, MARK, Item, punctuation
from slicemill.execution.sources import Agenda, Arrival, Source, end_of
from slicemill.execution.state_table import Automaton, StrategyOf, bind

Choose = Callable[[Sequence[Fragment]], Fragment]
"""The scheduler between fragments: picks one of those that may have work."""


class TraceStep(NamedTuple):
    """One execution step: when it began, where, and on what."""

    at: int
    state: str
    what: str
    ts: int


def round_robin() -> Choose:
    """Each fragment in turn, until it exits."""
    last: list[Fragment] = []

    def choose(fragments: Sequence[Fragment]) -> Fragment:
        chosen = fragments[0]
        if last and last[0] in fragments:
            chosen = fragments[(fragments.index(last[0]) + 1) % len(fragments)]
        last[:] = [chosen]
        return chosen

    return choose


class Cycle:
    """Runs a graph. `steps` counts execution steps; `trace`, when it is a list, records them."""

    def __init__(
        self,
        graph: Graph,
        clock: Clock,
        random: Random,
        strategy_of: StrategyOf,
        on_demand: bool,
        propagation: Propagation,
        choose: Choose,
        trace: list[TraceStep] | None,
    ) -> None:
        self._graph = graph
        self._clock = clock
        self._random = random
        self._strategy_of = strategy_of
        self._on_demand = on_demand
        self._uses_arcs = propagation == "arcs"
        self._choose = choose
        self._trace = trace
        self._current: State | None = None
        self._automaton: Automaton | None = None
        self.agenda = Agenda()
        self.steps = 0

    @property
    def automaton(self) -> Automaton:
        if self._automaton is None:
            self._automaton = bind(self._graph, self._strategy_of, self._uses_arcs)
        return self._automaton

    def rebind(self) -> None:
        """Topology or strategies have changed: remap the transitions before the next step (M19)."""
        self._automaton = None
        self._current = None
        # A new consumer does not know what the others were told.
        for source in self._graph.sources.values():
            source.told = BEGINNING
        for node in self._graph.operators.values():
            node.promised = BEGINNING

    def run(self, until: int = END, max_steps: int | None = None) -> None:
        """Run until nothing is left to do, until the clock is at `until`, or for `max_steps` steps."""
        last_step = END if max_steps is None else self.steps + max_steps
        clock = self._clock
        agenda = self.agenda
        while True:
            if clock.now() >= agenda.next_at:
                agenda.fire_until(clock.now())
            if self.steps >= last_step or clock.now() >= until:
                return
            state = self._current
            state = next_operator(state, self._ask) if state is not None else None
            if state is None:
                state = self._schedule()
            self._current = state
            if state is not None:
                self._execute(state)
            elif not self._wait(until):
                return

    def deliver(self, source: Source, arrival: Arrival) -> None:
        """An arrival reaches its source's wrapper."""
        if source.late is not None and source.is_late(arrival):
            source.late_rows += 1
            self.deliver(source.late, Arrival(arrival.at, arrival.row))
        else:
            self._enter(source, source.stamp(arrival))

    def announce(self, source: Source, ts: int) -> State | None:
        """The source promises `ts`; the operator to run next, None when the promise could not be placed."""
        inlet = self.automaton.inlets[source.name]
        held = source.pass_time(ts)
        if held:
            self._enter(source, held)
        if not self._uses_arcs:
            source.told = ts
            self._enter(source, [punctuation(ts, self._clock.now())])
            return inlet.states[0] if inlet.states else None
        clear = [arc for arc in inlet.arcs if arc.clear()]
        if clear:
            source.told = ts
            self._write(clear, ts)
            return clear[0].target
        return inlet.states[0] if held and inlet.states else None

    def close(self, source: Source) -> None:
        """The source's input has ended for good. The last ETS travels as a tuple: all operators need it."""
        if not source.closed:
            self._enter(source, end_of(source, self._clock.now()))

    def _enter(self, source: Source, items: list[Item]) -> None:
        inlet = self.automaton.inlets[source.name]
        now = self._clock.now()
        for item in items:
            source.output.append(item)
            if item[0].row is not MARK:
                for sink in inlet.sinks:
                    sink.take(item, now)
        for fragment in inlet.fragments:
            fragment.dirty = True
        for meter in inlet.meters:
            meter.update(now)

    def _schedule(self) -> State | None:
        while fragments := [fragment for fragment in self.automaton.fragments if fragment.dirty]:
            fragment = fragments[0] if len(fragments) == 1 else self._choose(fragments)
            entry = fragment.entry()
            if entry is not None:
                return entry
        return None

    def _wait(self, until: int) -> bool:
        """Move to the next moment at which something happens; False when there is none before `until`."""
        now = self._clock.now()
        wake = END
        if self._on_demand:
            for source in self._graph.sources.values():
                need = self._need(source)
                moment = source.moment_of(need) if need is not None else None
                if moment is None:
                    continue
                if moment > now:
                    wake = min(wake, moment)
                elif self._ask(source) is not None:
                    return True
        if self.agenda.finished and until == END:
            return False
        following = min(self.agenda.next_at, wake)
        if following > until or following == END:
            if until != END:
                self._clock.wait_until(until)
            return False
        self._clock.wait_until(following)
        return True

    def _need(self, source: Source) -> int | None:
        """The least timestamp that somebody waits for and this source could tell of, but has not."""
        need = END
        inlet = self.automaton.inlets[source.name]
        for arc, reached in zip(inlet.arcs, inlet.reached, strict=True):
            for node in reached:
                wanted = node.waiting_for()
                if wanted is not None and need > wanted > source.told and arc.value() < wanted:
                    need = wanted
        return need if need < END else None

    def _ask(self, source: Source) -> State | None:
        """On-demand ETS (M25): given only when it ends somebody's waiting, so that every round consumes."""
        if not self._on_demand:
            return None
        need = self._need(source)
        if need is None:
            return None
        ts = source.ets(self._clock.now())
        return self.announce(source, ts) if ts is not None and ts >= need else None

    def _execute(self, state: State) -> None:
        node = state.node
        port = node.gate.port()
        if port < 0:
            if self._uses_arcs and state.must_pass():
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
        self._record(node, "data", tuple_.ts)
        operator = node.operator
        released: Sequence[Timed] = ()
        if operator.waits_for_time:
            if tuple_.ts > node.advanced:
                node.advanced = tuple_.ts
                released = operator.advance(tuple_.ts)
            elif node.latent and tuple_.ts < node.advanced:
                # Nobody stamped a latent tuple: here it gets one that fits the order it is taken in (M24).
                tuple_ = Timed(node.advanced, tuple_.row)
        produced = operator.process(port, tuple_)
        cost_us = node.cost.data_us
        self._clock.spend(cost_us if isinstance(cost_us, int) else cost_us(tuple_, self._random))
        if released:
            self._emit(state, released, node.last_arrival)
        node.last_arrival = arrival
        if produced:
            self._emit(state, produced, arrival)
        elif node.waits and not released:
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
        """A step that moves nothing but time: release what waited for it, else say so downstream."""
        node = state.node
        registers = node.gate.registers
        low = registers.low()
        released: Sequence[Timed] = ()
        if node.operator.waits_for_time and low > node.advanced:
            node.advanced = low
            released = node.operator.advance(low)
        self._clock.spend(node.cost.time_us)
        registers.deactivate()
        if released:
            self._emit(state, released, node.last_arrival)
        else:
            self._tell(state)

    def _tell(self, state: State) -> None:
        """No data came out of a step: its consumers learn how far time has come (X20, M23)."""
        node = state.node
        promise = node.promise()
        if promise <= node.promised:
            return
        if not self._uses_arcs:
            self._append(state, punctuation(promise, self._clock.now()))
        elif all(arc.clear() for arc in state.arcs):
            self._write(state.arcs, promise)
            state.tsm_yield = state.arcs[0].target if state.arcs else None
        else:
            # Tuples are still under way to the register: the value waits here until they have passed.
            node.gate.registers.active[0] = True
            return
        node.promised = promise

    def _write(self, arcs: Sequence[BoundArc], ts: int) -> None:
        for arc in arcs:
            arc.target.node.gate.registers.write(arc.port, ts)
            arc.target.fragment.dirty = True

    def _emit(self, state: State, produced: Sequence[Timed], arrival: int) -> None:
        items = [(tuple_, arrival) for tuple_ in produced]
        now = self._clock.now()
        for sink in state.sinks:
            for item in items:
                sink.take(item, now)
        for item in items:
            self._append(state, item)

    def _append(self, state: State, item: Item) -> None:
        node = state.node
        node.output.append(item)
        if item[0].ts > node.promised:
            node.promised = item[0].ts
        for fragment in state.wakes:
            fragment.dirty = True
        for meter in state.meters:
            meter.update(self._clock.now())

    def _record(self, node: OperatorNode, what: str, ts: int) -> None:
        self.steps += 1
        if self._trace is not None:
            self._trace.append(TraceStep(self._clock.now(), node.name, what, ts))
