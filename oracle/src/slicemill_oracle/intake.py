"""Intake of tuples and enabling timestamps into the graph (M22-M26)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_oracle.clock import Clock
from slicemill_oracle.graph import Graph
from slicemill_oracle.nos import BoundArc, State
from slicemill_oracle.punctuation import END, MARK, Item, punctuation
from slicemill_oracle.sources import Arrival, ReferenceSource, end_of
from slicemill_oracle.state_table import Automaton


def write(arcs: Sequence[BoundArc], ts: int) -> None:
    """Write an enabling timestamp to the registers at the arcs' ends (M23)."""
    for arc in arcs:
        arc.target.node.gate.registers.write(arc.port, ts)
        arc.target.fragment.dirty = True


class ReferenceIntake:
    """Source side of the cycle. `automaton` is the cycle's current automaton."""

    def __init__(self, graph: Graph, clock: Clock, automaton: Automaton, on_demand: bool, arcs: bool) -> None:
        self._graph = graph
        self._clock = clock
        self._on_demand = on_demand
        self._uses_arcs = arcs
        self.automaton = automaton

    def deliver(self, source: ReferenceSource, arrival: Arrival) -> None:
        """Pass an arrival to its source, or to the late stream."""
        if source.late is not None and source.is_late(arrival):
            source.note_late(arrival)
            self.deliver(source.late, Arrival(arrival.at, arrival.row))
        else:
            self._enter(source, source.stamp(arrival))

    def announce(self, source: ReferenceSource, ts: int) -> State | None:
        """Announce a source's ETS `ts`. Return the operator to run next."""
        inlet = self.automaton.inlets[source.name]
        held = source.pass_time(ts)
        if held:
            self._enter(source, held)
        source.told = ts
        if self._uses_arcs and all(arc.clear() for arc in inlet.arcs):
            write(inlet.arcs, ts)
            return inlet.arcs[0].target if inlet.arcs else None
        # An ETS must not overtake tuples that are on the way to the register.
        self._enter(source, [punctuation(ts, self._clock.now())])
        return inlet.states[0] if inlet.states else None

    def close(self, source: ReferenceSource) -> None:
        """End a source with an ETS of infinity.

        This ETS travels as punctuation, because all operators need it.
        """
        if not source.closed:
            self._enter(source, end_of(source, self._clock.now()))

    def next_offer(self) -> int:
        """Return the time at which a source can end a wait.

        If a source can end a wait now, its enabling timestamp is sent.
        """
        wake = END
        if self._on_demand and any(node.waiting_for() is not None for node in self.automaton.waiters):
            now = self._clock.now()
            for source in self._graph.sources.values():
                need = self._least_awaited_ts(source)
                moment = source.moment_of(need) if need is not None else None
                if moment is None:
                    continue
                if moment > now:
                    wake = min(wake, moment)
                elif self.ask(source) is not None:
                    return now
        return wake

    def ask(self, source: ReferenceSource) -> State | None:
        """Send an on-demand ETS (M25) if it ends an operator's wait.

        Otherwise nothing is sent, so every round makes progress.
        """
        need = self._least_awaited_ts(source) if self._on_demand else None
        if need is None:
            return None
        ts = source.ets(self._clock.now())
        state = self.announce(source, ts) if ts is not None and ts >= need else None
        if state is not None:
            state.ready()
        return state

    def _enter(self, source: ReferenceSource, items: list[Item]) -> None:
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

    def _least_awaited_ts(self, source: ReferenceSource) -> int | None:
        """Return the least awaited timestamp that this source has not announced yet."""
        need = END
        for arc in self.automaton.inlets[source.name].reached:
            wanted = arc.target.node.waiting_for()
            if wanted is not None and need > wanted > source.told and arc.value() < wanted:
                need = wanted
        return need if need < END else None
