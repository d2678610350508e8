"""Multi-way join on a ring of nodes, with detection of completion (S27-S34).

    at the start node        build, then probe                    at every node
    ─────────────────        ─────────────────                    ─────────────
    store the tuple          push out tuples that are too old     pass the partial result on, then
    send it round            send the probe on                    compare; send new partial results
    compare                  compare; results go round            round, emit complete results

A partial result ends where it was created, after one round. The last partial result of each schema that
the start node creates is its END. When END number m - 1 of a tuple is created, all other messages of that
tuple precede it on every link, so the next tuple may enter (Theorem 7). `in_flight` is the number of
tuples in flight: 1 is PSP, more is PSP-I; with `RolePlacement` it is PSP-D.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from random import Random

from slicemill.types import Timed
from slicemill_oracle.ring.join import RingJoin, RingResult
from slicemill_oracle.ring.machines import Machines, RingCosts
from slicemill_oracle.ring.node import Build, Intermediate, Probe, ProbeEnd, RingNode
from slicemill_oracle.ring.placement import RolePlacement, SlicePlacement
from slicemill_oracle.slices.items import Item

RingMessage = Build | Probe | Intermediate | ProbeEnd
MICROSECONDS = 1_000_000


class Ring:
    """Nodes that together store the state of one shared join.

    Arrivals are in timestamp order. Without `random`, time is virtual and a tuple arrives at its timestamp,
    in microseconds. With `random`, work is done in any order that FIFO links allow.
    """

    def __init__(
        self,
        join: RingJoin,
        placement: SlicePlacement | RolePlacement,
        *,
        in_flight: int = 1,
        costs: RingCosts | None = None,
        random: Random | None = None,
    ) -> None:
        self.join = join
        self.placement = placement
        self.nodes = [RingNode(join.streams) for _ in range(placement.nodes)]
        self.compared = [0] * placement.nodes
        """Pairs compared so far, by node."""
        self.messages = 0
        self.largest = 0
        """The maximal number of stored tuples, including copies."""
        self.machines: Machines[RingMessage] = Machines(placement.nodes, costs or RingCosts(), random)
        self._random = random
        self._interleaved = in_flight > 1
        self._slots = [0.0] * in_flight
        """The time from which each slot for a tuple in flight is free."""
        self._under_way: dict[int, int] = {}
        """The timestamps of tuples whose last END has not completed its round."""
        self._number = 0
        self._latest = 0
        self._results: list[RingResult] = []

    @property
    def size(self) -> int:
        """The number of stored tuples, including copies."""
        return sum(node.size for node in self.nodes)

    def run(self, arrivals: Iterable[tuple[int, Timed]]) -> list[RingResult]:
        """Process tuples in time order until no message is left."""
        self._results = []
        waiting = deque(arrivals)
        while True:
            if waiting and self._slots and self._is_next(waiting[0][1]):
                self._admit(*waiting.popleft())
            elif not self.machines.step(self._handle):
                return self._results

    def spread_over(self, nodes: int) -> None:
        """Change the number of nodes for new tuples. Stored tuples do not move (S40)."""
        self._only_one_in_flight()
        self.placement.spread_over(nodes)
        self._ensure_nodes()

    def relocate(self, nodes: int) -> int:
        """Change the number of nodes and move stored tuples immediately (S41).

        Return the number of moved tuples.
        """
        self._only_one_in_flight()
        self.placement.relocate(nodes, self._latest)
        before = self.nodes
        self.nodes = [RingNode(self.join.streams) for _ in range(nodes)]
        moved = 0
        for stream, window in enumerate(self.join.windows):
            stored = [(item, one) for one, node in enumerate(before) for item in node.states[stream].items]
            for item, old in sorted(stored, key=lambda pair: pair[0].number):
                if (age := self._latest - item.ts) < window:
                    new = self.placement.node_of(age, stream)
                    self.nodes[new].states[stream].items.append(item)
                    moved += new != old
        self._ensure_nodes()
        self.machines.spend(moved * self.machines.costs.send)
        return moved

    def _only_one_in_flight(self) -> None:
        if self._interleaved and isinstance(self.placement, SlicePlacement):
            raise ValueError(
                "slices change only while one tuple is under way at a time: ages tell them apart"
            )

    def _ensure_nodes(self) -> None:
        while len(self.nodes) < self.placement.nodes:
            self.nodes.append(RingNode(self.join.streams))
        self.compared += [0] * (len(self.nodes) - len(self.compared))
        self.machines.grow(len(self.nodes))

    def _is_next(self, tuple_: Timed) -> bool:
        """Return True if the tuple enters before the next message."""
        if self._random:
            return self.machines.next_start == float("inf") or self._random.random() < 0.5
        return max(tuple_.ts / MICROSECONDS, self._slots[0]) <= self.machines.next_start

    def _admit(self, stream: int, tuple_: Timed) -> None:
        item = self.join.item(self._number, stream, tuple_)
        self._number += 1
        self._latest = tuple_.ts
        if not item.mask:
            return
        at = max(tuple_.ts / MICROSECONDS, heappop(self._slots))
        start = self.placement.start(item)
        self._under_way[item.number] = item.ts
        self._send(start, Build(item), at)
        self._send(start, Probe(item, start, horizon=min(self._under_way.values())), at)

    def _send(self, node: int, message: RingMessage, at: float | None = None) -> None:
        self.messages += 1
        self.machines.send(node, message, at)

    def _send_on(self, node: int, message: RingMessage) -> None:
        self._send((node + 1) % len(self.nodes), message)

    def _handle(self, node: int, message: RingMessage) -> None:
        if isinstance(message, Build):
            self._store(node, message.item)
        elif isinstance(message, Probe):
            self._begin(node, message)
        elif isinstance(message, Intermediate):
            self._pass(node, message)
        else:
            self._end(node, message)

    def _store(self, node: int, item: Item) -> None:
        self.machines.spend(self.machines.costs.insert)
        state = self.nodes[node].states[item.side]
        state.items.append(item)
        self.largest = max(self.largest, self.size)
        if len(state.items) - state.sent > self.placement.capacity(node, item.side):
            oldest = state.items[state.sent]
            state.sent += 1
            self._push_out(node, oldest)
            state.delete(self.nodes[node].in_flight, self._visible_ages(node, item.side)[1])

    def _begin(self, node: int, probe: Probe) -> None:
        here = self.nodes[node]
        here.in_flight[probe.item.number] = probe.item
        self.machines.spend(self.machines.costs.purge)
        # If tuples arrive out of order, a newer tuple must not purge tuples that an older probe needs.
        now = probe.item.ts if self.placement.in_order else probe.horizon
        for stream, state in enumerate(here.states):
            end = self.placement.ages(node, stream)[1]
            for item in state.expire(now, end):
                self._push_out(node, item)
            state.delete(here.in_flight, end)
        if (node + 1) % len(self.nodes) != probe.start:
            self._send_on(node, probe)
        self._find(node, (probe.item,), probe.item.mask, probe, end=node == probe.start)

    def _push_out(self, node: int, item: Item) -> None:
        """Send a build to the next slice if a query needs it (S47)."""
        holder = self.placement.next_holder(node, item.side)
        if holder is not None and item.mask & self.join.reach(
            item.side, self.placement.ages(holder, item.side)[0]
        ):
            self._send(holder, Build(item))

    def _pass(self, node: int, partial: Intermediate) -> None:
        home = partial.born == node
        if not home:
            self._send_on(node, partial)
        end = partial.end and home
        self._find(node, partial.items, partial.queries, partial.probe, end, length=partial.length)

    def _find(
        self, node: int, items: tuple[Item, ...], queries: int, probe: Probe, end: bool, length: int = 1
    ) -> None:
        """Compare with the active state and send partial results.

        With `end`, the last partial result is an END.
        """
        found = self._compare(node, items, queries, probe) if items else []
        complete = length + 1 == self.join.streams
        if complete:
            self._results += [RingResult(longer, left, self.machines.now) for longer, left in found]
        else:
            if end and not found:
                found = [((), 0)]
            for index, (longer, left) in enumerate(found, 1):
                last = end and index == len(found)
                self._send_on(node, Intermediate(longer, left, node, length + 1, probe, last))
        if end and complete:
            heappush(self._slots, self.machines.now)
            self._end(node, ProbeEnd(probe))

    def _compare(
        self, node: int, items: tuple[Item, ...], queries: int, probe: Probe
    ) -> list[tuple[tuple[Item, ...], int]]:
        stream = self.join.probes(items)
        seen = self.nodes[node].visible(stream, probe.item, *self._visible_ages(node, stream))
        # Slices that no query of the partial result reaches are skipped (S48).
        useful = [item for item in seen if queries & self.join.reach(stream, probe.item.ts - item.ts)]
        self.compared[node] += len(useful)
        self.machines.spend(len(useful) * self.machines.costs.join)
        return [((*items, item), left) for item in useful if (left := self.join.match(items, queries, item))]

    def _visible_ages(self, node: int, stream: int) -> tuple[float, float]:
        """Return the visible ages: all, or the slice's if copies may exist."""
        return self.placement.ages(node, stream) if self._interleaved else (0.0, self.join.windows[stream])

    def _end(self, node: int, finished: ProbeEnd) -> None:
        here = self.nodes[node]
        del here.in_flight[finished.probe.item.number]
        for stream, state in enumerate(here.states):
            state.delete(here.in_flight, self.placement.ages(node, stream)[1])
        if (node + 1) % len(self.nodes) != finished.probe.start:
            self._send_on(node, finished)
        else:
            del self._under_way[finished.probe.item.number]


def responses(results: Sequence[RingResult]) -> list[float]:
    """Return the seconds from the arrival of each result's newest tuple to the result."""
    return [result.at - result.newest.ts / MICROSECONDS for result in results]
