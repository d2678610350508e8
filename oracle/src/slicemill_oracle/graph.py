"""Runtime query graph: sources, operators, sinks, buffers, and live changes (M1, M19).

Changes happen between two steps of the cycle and never lose or reorder a tuple. An operator that is
inserted into an arc takes over the tuples waiting there. The consumers of a removed operator first read
its remaining output, then its unread input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from slicemill.errors import SlicemillError
from slicemill.operators.row_step import DelayedOutput, RowOperator
from slicemill_oracle.buffers import Buffer, Occupancy, Reader
from slicemill_oracle.costs import FREE, StepCost
from slicemill_oracle.metrics import IdleMeter, LatencyMeter
from slicemill_oracle.operators.stateless import SinkOperator
from slicemill_oracle.punctuation import BEGINNING, Item, is_punctuation
from slicemill_oracle.sources import ReferenceSource, ScheduledSource
from slicemill_oracle.tsm import BasicGate, Gate, More, RelaxedGate, SingleGate, UnorderedGate


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """An operator, the names of its inputs, and its step costs."""

    name: str
    operator: RowOperator
    inputs: tuple[str, ...]
    cost: StepCost = FREE


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A sink for the results of `input`.

    Without `keep`, results are only counted.
    """

    name: str
    input: str
    keep: bool = True


Spec = ScheduledSource | OperatorSpec | SinkSpec


@dataclass(frozen=True, slots=True)
class Topology:
    """A graph's structure: each operator's producers, and break points."""

    sources: tuple[str, ...]
    operators: Mapping[str, tuple[str, ...]]
    breaks: frozenset[tuple[str, str]] = frozenset()

    def consumers(self, producer: str) -> list[str]:
        """Return the distinct operators that read a node, in insertion order."""
        return [name for name, inputs in self.operators.items() if producer in inputs]


class SinkNode:
    """A sink with latency measurement, which takes results immediately (the output wrapper)."""

    __slots__ = ("delivered_at", "keep", "latency", "name", "sink")

    def __init__(self, spec: SinkSpec) -> None:
        self.name = spec.name
        self.keep = spec.keep
        self.sink = SinkOperator()
        self.latency = LatencyMeter()
        self.delivered_at: list[int] = []

    def take(self, item: Item, now: int) -> None:
        self.latency.add(now - item[1])
        if self.keep:
            self.sink.process(0, item[0])
            self.delivered_at.append(now)


class OperatorNode:
    """An operator at run time: readers, gate, output buffer and time progress."""

    __slots__ = (
        "advanced",
        "cost",
        "ended",
        "gate",
        "holding",
        "inputs",
        "last_arrival",
        "latent",
        "meter",
        "name",
        "operator",
        "output",
        "promised",
        "readers",
        "waits",
    )

    def __init__(
        self, spec: OperatorSpec, readers: list[Reader], output: Buffer, gate: Gate, latent: bool
    ) -> None:
        self.name = spec.name
        self.operator = spec.operator
        self.holding = spec.operator if isinstance(spec.operator, DelayedOutput) else None
        self.cost = spec.cost
        self.inputs = list(spec.inputs)
        self.readers = readers
        self.output = output
        self.gate = gate
        self.latent = latent
        self.waits = spec.operator.waits_for_time and not latent
        self.meter = IdleMeter(readers)
        self.advanced = BEGINNING
        self.promised = BEGINNING
        self.last_arrival = 0
        self.ended = False

    def waiting_for(self) -> int | None:
        """Return the timestamp that would let this operator process waiting data.

        None if the operator is not waiting.
        """
        if not self.waits:
            return None
        wanted = self.holding.due() if self.holding is not None else None
        for reader in self.readers:
            first = reader.first_data()
            if first is not None and (wanted is None or first.ts < wanted):
                wanted = first.ts
        return wanted if wanted is not None and self.gate.port() < 0 else None

    def promise(self) -> int:
        """Return a lower bound on the timestamps of future outputs."""
        low = self.gate.registers.low()
        held = self.holding.held_from() if self.holding is not None else None
        return low if held is None else min(low, held)


class Graph:
    """All nodes by name, with the operations that change the graph."""

    def __init__(self, random: Random, more: More = "relaxed") -> None:
        self._random = random
        self._more = more
        self.occupancy = Occupancy()
        self.sources: dict[str, ReferenceSource] = {}
        self.operators: dict[str, OperatorNode] = {}
        self.sinks: dict[str, SinkNode] = {}
        self.sink_inputs: dict[str, str] = {}
        self.breaks: set[tuple[str, str]] = set()

    def topology(self) -> Topology:
        inputs = {name: tuple(self.operators[name].inputs) for name in self._upstream_first()}
        return Topology(tuple(self.sources), inputs, frozenset(self.breaks))

    def sinks_of(self, producer: str) -> list[SinkNode]:
        return [self.sinks[name] for name, source in self.sink_inputs.items() if source == producer]

    def add(self, spec: Spec) -> None:
        """Add a node, which reads the output of its inputs from now on."""
        self._check_new(spec.name)
        if isinstance(spec, ScheduledSource):
            late = None
            if spec.kind == "external":
                late = ReferenceSource(ScheduledSource(f"{spec.name}_late"), self.occupancy)
                self.sources[late.name] = late
            self.sources[spec.name] = ReferenceSource(spec, self.occupancy, late)
        elif isinstance(spec, SinkSpec):
            self._producer(spec.input)
            self.sinks[spec.name] = SinkNode(spec)
            self.sink_inputs[spec.name] = spec.input
        else:
            self._add_operator(spec, [self._producer(name).output.reader() for name in spec.inputs])

    def insert(self, spec: OperatorSpec, consumer: str) -> None:
        """Insert a single-input operator into the arc from its input to `consumer`."""
        self._check_new(spec.name)
        (producer,) = spec.inputs
        node = self.operators[consumer]
        if producer not in node.inputs:
            raise SlicemillError(f"no arc {producer} → {consumer} to insert {spec.name} into")
        port = node.inputs.index(producer)
        self._add_operator(spec, [node.readers[port]])
        node.readers[port] = self.operators[spec.name].output.reader()
        node.inputs[port] = spec.name

    def remove_operator(self, name: str, now: int) -> None:
        """Remove a single-input operator after flushing its state."""
        node = self.operators[name]
        if len(node.inputs) != 1:
            raise SlicemillError(f"{name} has several inputs: remove the queries that use it instead")
        for tuple_ in () if node.ended else node.operator.finish():
            self._emit(node, (tuple_, node.last_arrival), now)
        for sink in self.sinks_of(name):
            self.sink_inputs[sink.name] = node.inputs[0]
            for item in pending_items(node.readers[0]):
                if not is_punctuation(item):
                    sink.take(item, now)
        for consumer, port in self._consumer_ports(name):
            consumer.readers[port].follow(node.readers[0].copy())
            consumer.inputs[port] = node.inputs[0]
        self._forget(node)

    def remove_query(self, sink: str) -> None:
        """Remove a sink and the operators that no other sink uses."""
        del self.sinks[sink]
        producer = self.sink_inputs.pop(sink)
        useless = [producer]
        while useless:
            name = useless.pop()
            used = name in self.sink_inputs.values() or any(True for _ in self._consumer_ports(name))
            if name in self.operators and not used:
                node = self.operators[name]
                self._forget(node)
                useless.extend(node.inputs)

    def _add_operator(self, spec: OperatorSpec, readers: list[Reader]) -> None:
        if len(spec.inputs) != spec.operator.inputs:
            raise SlicemillError(
                f"{spec.name} has {spec.operator.inputs} inputs, not the {len(spec.inputs)} of {spec.inputs}"
            )
        latent = all(self._is_latent(name) for name in spec.inputs)
        gate = self._gate(readers, spec.operator.waits_for_time and not latent)
        self.operators[spec.name] = OperatorNode(spec, readers, Buffer(self.occupancy), gate, latent)

    def _gate(self, readers: list[Reader], waits: bool) -> Gate:
        if waits:
            return (RelaxedGate if self._more == "relaxed" else BasicGate)(readers, self._random)
        return SingleGate(readers) if len(readers) == 1 else UnorderedGate(readers, self._random)

    def _is_latent(self, name: str) -> bool:
        return self.sources[name].kind == "latent" if name in self.sources else self.operators[name].latent

    def _producer(self, name: str) -> ReferenceSource | OperatorNode:
        producer = self.sources.get(name) or self.operators.get(name)
        if producer is None:
            raise SlicemillError(f"no source or operator {name!r}: add it before what reads from it")
        return producer

    def _check_new(self, name: str) -> None:
        if name in self.sources or name in self.operators or name in self.sinks:
            raise SlicemillError(f"there is already a node {name!r}: choose another name")

    def _consumer_ports(self, producer: str) -> Iterator[tuple[OperatorNode, int]]:
        for node in self.operators.values():
            for port, name in enumerate(node.inputs):
                if name == producer:
                    yield node, port

    def _emit(self, node: OperatorNode, item: Item, now: int) -> None:
        node.output.append(item)
        for sink in self.sinks_of(node.name):
            sink.take(item, now)

    def _forget(self, node: OperatorNode) -> None:
        for reader in node.readers:
            reader.close()
        del self.operators[node.name]
        self.breaks = {arc for arc in self.breaks if node.name not in arc}

    def _upstream_first(self) -> list[str]:
        done: dict[str, None] = {}
        pending = list(self.operators)
        while pending:
            later = []
            for name in pending:
                ready = all(i in done or i in self.sources for i in self.operators[name].inputs)
                if ready:
                    done[name] = None
                else:
                    later.append(name)
            pending = later
        return list(done)


def pending_items(reader: Reader) -> Sequence[Item]:
    """Return a reader's unread items, in all linked buffers, oldest first."""
    items: list[Item] = []
    index: Reader | None = reader
    while index is not None:
        items.extend(list(index.buffer.items)[index.position - index.buffer.base :])
        index = index.behind
    return items
