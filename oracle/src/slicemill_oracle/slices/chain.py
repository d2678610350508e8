"""Chain of sliced joins, equivalent to one join with the longest window (S10, S12, S14).

```
  arrivals ─► [0, w1) ──queue──► [w1, w2) ──queue──► [w2, w3)
                 │                  │                   │          results, and a punctuation for each
              U1 ▼               U2 ▼                U3 ▼          completed probe
```

Each arriving tuple sends two references down the chain. The first reference probes the other stream's state
in every slice. The second reference is stored, and moves on to the next slice as it ages. A slice sends
purged tuples ahead of the probe that purged them, in one FIFO queue, so the next slice receives them in
time. No other synchronization is needed: slices may run in any order and at any speed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from slicemill.errors import SlicemillError
from slicemill.operators.join.slices.coverage import Cut
from slicemill.operators.join.slices.workload import (
    AgeSpan,
    Member,
    bits,
    count_predicate_tests,
    span,
    windows,
)
from slicemill.types import Timed
from slicemill_oracle.slices.counters import Counters
from slicemill_oracle.slices.items import Item, Reference, SliceDelivery, join_items
from slicemill_oracle.slices.selection import Evaluate, SliceSelection, evaluate_predicate
from slicemill_oracle.slices.time_slice import Condition, TimeSlice
from slicemill_oracle.slices.union import OrderedUnion


class Chain:
    """A running chain.

    `ends` are the ends of the slices on the left and right stream. With `one_way`, only left tuples are
    stored and only right tuples probe. With `pulled_up`, everything is stored and filters apply to join
    results. Count windows are always pulled up, because a rank also counts tuples that a query filters out.
    """

    def __init__(
        self,
        members: Sequence[Member],
        ends: tuple[Sequence[float], Sequence[float]],
        condition: Condition,
        *,
        evaluate: Evaluate = evaluate_predicate,
        slice_type: type[TimeSlice] = TimeSlice,
        one_way: bool = False,
        pulled_up: bool = False,
    ) -> None:
        self.cuts: list[Cut] = list(zip(*ends, strict=True))
        self.counters = Counters()
        self.slices: list[TimeSlice] = []
        self.queues: list[deque[Reference]] = []
        self.unions: dict[str, OrderedUnion] = {}
        self.last_ts: int | None = None
        self._slice_type = slice_type
        self._condition = condition
        self._evaluate = evaluate
        self._one_way = one_way
        self._pulled_up = pulled_up or slice_type.counts_tuples
        self._number = 0
        self._delivered: list[SliceDelivery] = []
        for _ in self.cuts:
            self.queues.append(deque())
            self.slices.append(self.new_slice())
        self.share(members)

    # ----- running

    def arrive(self, side: int, tuple_: Timed) -> None:
        """Queue a tuple before the first slice.

        Tuples of both streams must arrive in timestamp order (S5).
        """
        if self.last_ts is not None and tuple_.ts < self.last_ts:
            late = f"a tuple at {tuple_.ts} came after one at {self.last_ts}"
            raise SlicemillError(f"{late}: a chain needs its input in order")
        self.last_ts = tuple_.ts
        self._number += 1
        item = Item(side, self._number, tuple_.ts, tuple_.row, self._selections[side].mask(tuple_.row))
        if not self._pulled_up:
            self.counters.select += self._selections[side].tests
            if not item.mask:
                return
        if not self._one_way or side == 1:
            for union in self.unions.values():
                union.open(item.number)
            self.queues[0].append(Reference(item, probes=True))
        if not self._one_way or side == 0:
            self.queues[0].append(Reference(item, probes=False))

    def ready(self) -> list[int]:
        """Return the slices with waiting references."""
        return [number for number, queue in enumerate(self.queues) if queue]

    def run(self, number: int) -> None:
        """Process one reference in slice `number`."""
        item, probes = self.queues[number].popleft()
        here = self.slices[number]
        if not probes:
            self._pass_on(number, here.insert(item), probes=False)
            return
        self.counters.visits += 1
        self.counters.purge += 1
        purged = here.purge(item)
        self.counters.probe += len(here.states[1 - item.side])
        self._give(number, item, here.partners(item, self._condition))
        self._pass_on(number, purged, probes=False)
        self._pass_on(number, [item], probes=True)
        self._punctuate(number, item)

    def drain(self) -> None:
        """Run until all queues are empty, then release all results."""
        for number, queue in enumerate(self.queues):
            while queue:
                self.run(number)
        for query, union in self.unions.items():
            self._release(query, union.close(self._number))

    def process(self, side: int, tuple_: Timed) -> list[SliceDelivery]:
        """Process a tuple through the whole chain and return the results."""
        self.arrive(side, tuple_)
        self.drain()
        return self.take()

    def take(self) -> list[SliceDelivery]:
        """Return the results since the last call."""
        delivered, self._delivered = self._delivered, []
        return delivered

    @property
    def state_size(self) -> int:
        """The number of stored tuples, the state memory of the cost model."""
        return sum(len(state) for one in self.slices for state in one.states)

    def stored(self) -> Iterator[tuple[int, Item]]:
        """Yield every stored tuple with its slice."""
        for number, one in enumerate(self.slices):
            for state in one.states:
                yield from ((number, item) for item in state)

    # ----- changing, see `changing`

    def share(self, members: Sequence[Member]) -> None:
        """Set the queries of the chain. All queues must be empty.

        Masks of stored tuples are recomputed, and tuples that no query needs are dropped.
        """
        for side in (0, 1):
            if (longest := windows(members, side)[-1]) > self.cuts[-1][side]:
                raise SlicemillError(f"no slice reaches the end of a window of {longest:g}")
        self.members = tuple(members)
        self._selections = [SliceSelection(members, side, self._evaluate) for side in (0, 1)]
        self.unions = {one.query: self.unions.get(one.query, OrderedUnion()) for one in members}
        self.refresh()
        for number, one in enumerate(self.slices):
            for state in one.states:
                for item in state:
                    item.mask = self._selections[item.side].mask(item.row)
                kept = [item for item in state if self._wanted(number, item, probes=False)]
                state.clear()
                state.extend(kept)

    def refresh(self) -> None:
        """Recompute which query needs which slice, after changes of cuts or queries."""
        for number, one in enumerate(self.slices):
            for side in (0, 1):
                one.spans[side] = span(self.members, side, self.start(number)[side], self.cuts[number][side])
        self._last = [self._last_slice(one) for one in self.members]
        self._looks_of: dict[tuple[int, int], int] = {}

    def new_slice(self) -> TimeSlice:
        """Return an empty slice. `refresh` sets its bounds."""
        nowhere = AgeSpan(0, 0, 0)
        return self._slice_type(nowhere, nowhere)

    def start(self, number: int) -> Cut:
        """Return the start of slice `number` on both streams."""
        return self.cuts[number - 1] if number else (0, 0)

    # ----- after a probe

    def _give(self, number: int, probe: Item, found: list[tuple[Item, float]]) -> None:
        """Route pairs to the queries with matching windows and predicates."""
        here = self.slices[number].spans[1 - probe.side]
        reaching = here.mask
        self.counters.route += len(here.inside) * len(found)
        for partner, age in found:
            takers = here.queries_at(age)
            self.counters.select += self._looks(reaching, takers)
            takers &= probe.mask & partner.mask
            if takers:
                result = join_items(probe, partner)
                for bit in bits(takers):
                    self.unions[self.members[bit].query].add(probe.number, result)

    def _looks(self, reaching: int, takers: int) -> int:
        """Return the number of predicates still to test on a result."""
        looks = self._looks_of.get((reaching, takers))
        if looks is None:
            looks = count_predicate_tests(self.members, 0 if self._pulled_up else reaching, takers)
            self._looks_of[reaching, takers] = looks
        return looks

    def _last_slice(self, one: Member) -> int:
        """Return the slice in which the longer of a query's windows ends."""
        return max(
            next(number for number, cut in enumerate(self.cuts) if cut[side] >= one.sides[side].window)
            for side in (0, 1)
        )

    def _pass_on(self, number: int, items: list[Item], probes: bool) -> None:
        """Pass references on to the next slice if a later slice needs them."""
        if number + 1 < len(self.queues):
            queue = self.queues[number + 1]
            queue.extend(Reference(item, probes) for item in items if self._wanted(number + 1, item, probes))

    def _wanted(self, number: int, item: Item, probes: bool) -> bool:
        """Return True if a slice needs a tuple.

        A stored tuple is needed if the window of one of its queries on its own stream reaches into the
        slice. A probe is needed if such a window on the other stream does.
        """
        needed = self.slices[number].spans[1 - item.side if probes else item.side].mask
        return bool(needed if self._pulled_up else needed & item.mask)

    def _punctuate(self, number: int, probe: Item) -> None:
        """Close the probe for queries that end in this slice.

        With a single slice, no union is counted.
        """
        for one, last in zip(self.members, self._last, strict=True):
            if last == number:
                self.counters.union += number > 0
                self._release(one.query, self.unions[one.query].close(probe.number))

    def _release(self, query: str, results: list[Timed]) -> None:
        self._delivered += [SliceDelivery(query, result) for result in results]
