"""Reference engine: a graph, a clock and the execution cycle.

    engine = Engine([
        ScheduledSource("S1"), ScheduledSource("S2"),
        OperatorSpec("σ", Select(lambda row: row[0] > 1), ("S1",), constant_cost(10)),
        OperatorSpec("U", Union(), ("σ", "S2"), constant_cost(10)),
        SinkSpec("out", "U"),
    ])
    engine.feed("S1", [Arrival(at=0, row=(2,))])
    engine.run()
    engine.results("out")

All random numbers depend on the seed, so equal seeds give equal runs. Graph, break points and strategies
may be changed between two runs, or during a run by an action (`at`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from slicemill.errors import SlicemillError
from slicemill.types import Timed
from slicemill_oracle.clock import Clock, VirtualClock
from slicemill_oracle.cycle import Choose, Cycle, TraceStep, round_robin
from slicemill_oracle.ets import EtsMode, OnDemand, Periodic, Propagation
from slicemill_oracle.graph import Graph, OperatorSpec, SinkNode, Spec
from slicemill_oracle.nos import Strategy
from slicemill_oracle.punctuation import END
from slicemill_oracle.sources import Arrival, EventLane, ReferenceSource, every
from slicemill_oracle.state_table import StateRow
from slicemill_oracle.tsm import More


@dataclass(frozen=True, slots=True)
class Latency:
    """Latency of a sink's outputs, from the last input to delivery."""

    outputs: int
    mean_us: float
    max_us: int


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of a run. `idle_share` is the share of idle-waiting time per merging operator."""

    now: int
    steps: int
    peak_items: int
    latency: dict[str, Latency]
    idle_share: dict[str, float]


class Engine:
    """Builds a graph from its nodes (producers first), feeds and runs it."""

    def __init__(
        self,
        nodes: Iterable[Spec],
        *,
        strategy: Strategy = "DFS",
        more: More = "relaxed",
        ets: EtsMode | None = None,
        propagation: Propagation = "punctuation",
        seed: int = 0,
        clock: Clock | None = None,
        choose: Choose | None = None,
        trace: bool = False,
    ) -> None:
        random = Random(seed)
        mode = OnDemand() if ets is None else ets
        self._clock = VirtualClock() if clock is None else clock
        self._graph = Graph(random, more)
        self._default = strategy
        self._strategies: dict[str, Strategy] = {}
        self._trace: list[TraceStep] | None = [] if trace else None
        for node in nodes:
            self._graph.add(node)
        self._cycle = Cycle(
            self._graph,
            self._clock,
            random,
            self._strategy_of,
            mode,
            propagation,
            choose or round_robin(),
            self._trace,
        )
        if isinstance(mode, Periodic):
            for name in mode.sources:
                self._add_heartbeat(self._source(name), mode.period_us)

    @property
    def now(self) -> int:
        return self._clock.now()

    @property
    def steps(self) -> int:
        return self._cycle.steps

    @property
    def trace(self) -> list[TraceStep]:
        """Return the steps so far. Requires `trace=True`."""
        if self._trace is None:
            raise SlicemillError("this engine keeps no trace: make it with trace=True")
        return self._trace

    def trace_text(self) -> str:
        """Return the trace as text, one line per step.

        Equal seeds give identical texts.
        """
        return "".join(f"{step.at} {step.state} {step.what} {step.ts}\n" for step in self.trace)

    def feed(self, source: str, arrivals: Iterable[Arrival]) -> None:
        """Add arrivals in time order. Generators are consumed lazily."""
        target = self._source(source)
        self._cycle.agenda.add(
            EventLane(source, arrivals, lambda arrival: self._cycle.intake.deliver(target, arrival))
        )

    def at(self, moment: int, action: Callable[[], None]) -> None:
        """Schedule an action at a time of the run, between two steps."""
        self._cycle.agenda.add(EventLane("an action", [Arrival(moment, ())], lambda _: action()))

    def run(self) -> None:
        """Run to the end of input, close all streams and flush."""
        self._cycle.run()
        for name in self._graph.sources:
            self.close(name)
        self._cycle.run()

    def run_until_idle(self) -> None:
        """Process all arrivals so far. The streams stay open."""
        self._cycle.run()

    def run_until(self, moment: int) -> None:
        """Run until the clock shows `moment`. A started step is completed."""
        self._cycle.run(until=moment)

    def step(self, count: int = 1) -> None:
        """Run at most this many execution steps."""
        self._cycle.run(max_steps=count)

    def close(self, source: str) -> None:
        """End a stream: its enabling timestamp becomes infinity."""
        self._cycle.intake.close(self._source(source))

    def promise(self, source: str, ts: int) -> None:
        """Announce the producer's enabling timestamp: later tuples are not below `ts`."""
        self._cycle.intake.announce(self._source(source), ts)

    def results(self, sink: str) -> list[Timed]:
        """Return the rows delivered to a sink, in order."""
        return self.sink(sink).sink.rows

    def sink(self, name: str) -> SinkNode:
        return self._graph.sinks[name]

    def late_rows(self, source: str) -> int:
        """Return the number of tuples diverted to the late stream, `<source>_late`."""
        return self._source(source).late_rows

    def metrics(self) -> Metrics:
        now = self.now
        meters = {sink.name: sink.latency for sink in self._graph.sinks.values()}
        merging = [node for node in self._graph.operators.values() if node.waits and len(node.inputs) > 1]
        return Metrics(
            now=now,
            steps=self.steps,
            peak_items=self._graph.occupancy.peak,
            latency={name: Latency(m.count, m.mean_us, m.max_us) for name, m in meters.items()},
            idle_share={node.name: node.meter.total_us(now) / now if now else 0.0 for node in merging},
        )

    def queue_size(self) -> int:
        """Return the number of items in all buffers."""
        return self._graph.occupancy.total

    def state_table(self) -> list[StateRow]:
        return self._cycle.automaton.table

    def add(self, *nodes: Spec) -> None:
        """Add nodes, for instance a query. The nodes read tuples produced from now on."""
        for node in nodes:
            self._graph.add(node)
        self._cycle.rebind()

    def insert(self, node: OperatorSpec, before: str) -> None:
        """Insert an operator before `before`. The operator receives the tuples waiting there."""
        self._graph.insert(node, before)
        self._cycle.rebind()

    def remove_operator(self, name: str) -> None:
        """Remove an operator from its path. Its unread tuples bypass the operator."""
        self._graph.remove_operator(name, self.now)
        self._cycle.rebind()

    def remove_query(self, sink: str) -> None:
        """Remove a sink and all operators that no other sink uses."""
        self._graph.remove_query(sink)
        self._cycle.rebind()

    def set_break(self, producer: str, consumer: str) -> None:
        """Schedule the parts before and after this arc separately (M19)."""
        self._graph.breaks.add((producer, consumer))
        self._cycle.rebind()

    def clear_break(self, producer: str, consumer: str) -> None:
        self._graph.breaks.discard((producer, consumer))
        self._cycle.rebind()

    def set_strategy(self, strategy: Strategy, *operators: str) -> None:
        """Set the strategy of the named operators, or of the whole graph."""
        if operators:
            self._strategies.update(dict.fromkeys(operators, strategy))
        else:
            self._default = strategy
            self._strategies.clear()
        self._cycle.rebind()

    def _strategy_of(self, operator: str) -> Strategy:
        return self._strategies.get(operator, self._default)

    def _source(self, name: str) -> ReferenceSource:
        source = self._graph.sources.get(name)
        if source is None:
            raise SlicemillError(f"no source {name!r}: the sources are {', '.join(self._graph.sources)}")
        return source

    def _add_heartbeat(self, source: ReferenceSource, period_us: int) -> None:
        def beat(moment: Arrival) -> None:
            # Use the beat's own time, not the clock's: earlier arrivals may not have been admitted yet.
            ets = source.ets(moment.at)
            if ets is not None and source.told < ets < END:
                self._cycle.intake.announce(source, ets)

        self._cycle.agenda.add(EventLane(source.name, every(period_us, self.now), beat, endless=True))
