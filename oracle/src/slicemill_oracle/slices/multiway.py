"""Shared joins of several streams: slices per stream, routing by bitmaps (S45-S50).

Every stream is sliced by its own windows. A slice has the mask of the queries that reach into it, a tuple
the mask of the queries whose filter it passes, and a partial result the AND of its tuples' masks. A partial
result with a nonzero mask probes further slices with common bits. The bits of a complete result are its
queries. So filters, windows and routing are one operation, and a partial result that no query needs is never
probed further.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slicemill.operators.join.slices.workload import AgeSpan, Member, spans, windows
from slicemill.types import Row, Timed
from slicemill_oracle.slices.counters import Counters
from slicemill_oracle.slices.items import Item
from slicemill_oracle.slices.selection import Evaluate, SliceSelection, evaluate_predicate

Matches = Callable[[int, Row, int, Row], bool]
"""Returns True if rows of two streams match. The arguments are stream, row, stream, row."""


@dataclass(frozen=True, slots=True)
class PartialMatch:
    """Partial or complete result: items in order of discovery, slices, and queries."""

    items: tuple[Item, ...]
    found_in: tuple[int, ...]
    queries: int

    def in_stream_order(self) -> Row:
        """Return the values of the joined tuples, in stream order."""
        by_stream = sorted(self.items, key=lambda item: item.side)
        return tuple(value for item in by_stream for value in item.row)


class MultiwayJoin:
    """A shared join of streams, whose tuples arrive in timestamp order.

    `orders[i]` lists the streams that a tuple of stream i probes in turn, by default all others in order.
    `ends` sets cuts other than at every window.
    """

    def __init__(
        self,
        members: Sequence[Member],
        matches: Matches,
        *,
        orders: Sequence[Sequence[int]] | None = None,
        ends: Sequence[Sequence[float]] | None = None,
        evaluate: Evaluate = evaluate_predicate,
    ) -> None:
        streams = range(len(members[0].sides))
        self._matches = matches
        self._orders = orders or [[other for other in streams if other != one] for one in streams]
        self._selections = [SliceSelection(members, stream, evaluate) for stream in streams]
        self._number = 0
        self.counters = Counters()
        self.spans: list[tuple[AgeSpan, ...]] = [
            spans(members, stream, ends[stream] if ends else windows(members, stream)) for stream in streams
        ]
        self.states: list[list[deque[Item]]] = [[deque() for _ in cut] for cut in self.spans]

    @property
    def state_size(self) -> int:
        return sum(len(state) for stream in self.states for state in stream)

    def process(self, stream: int, tuple_: Timed) -> list[PartialMatch]:
        """Process a tuple. Return complete results with their queries."""
        selection = self._selections[stream]
        self.counters.select += selection.tests
        item = Item(stream, self._number, tuple_.ts, tuple_.row, selection.mask(tuple_.row))
        self._number += 1
        if not item.mask:
            return []
        for one in range(len(self.states)):
            self._purge(one, tuple_.ts)
        partials = [PartialMatch((item,), (), item.mask)]
        for probed in self._orders[stream]:
            partials = self._extend(partials, probed)
        self.states[stream][0].append(item)
        return partials

    def _extend(self, partials: Sequence[PartialMatch], stream: int) -> list[PartialMatch]:
        """Probe the slices of a stream with all partial results (S48)."""
        longer = []
        for number, (piece, state) in enumerate(zip(self.spans[stream], self.states[stream], strict=True)):
            for partial in partials:
                if partial.queries & piece.mask:
                    self.counters.probe += len(state)
                    longer += [
                        PartialMatch((*partial.items, item), (*partial.found_in, number), queries)
                        for item in state
                        if self._match(partial, item)
                        and (queries := partial.queries & item.mask & self._takers(piece, partial, item))
                    ]
        return longer

    def _match(self, partial: PartialMatch, item: Item) -> bool:
        return all(self._matches(one.side, one.row, item.side, item.row) for one in partial.items)

    def _takers(self, piece: AgeSpan, partial: PartialMatch, item: Item) -> int:
        self.counters.route += len(piece.inside)
        return piece.queries_at(partial.items[0].ts - item.ts)

    def _purge(self, stream: int, now: int) -> None:
        """Move tuples to later slices by age. Drop tuples that no query needs (S47)."""
        self.counters.purge += 1
        cut, states = self.spans[stream], self.states[stream]
        for number, (piece, state) in enumerate(zip(cut, states, strict=True)):
            while state and now - state[0].ts >= piece.end:
                item = state.popleft()
                if number + 1 < len(cut) and item.mask & cut[number + 1].mask:
                    states[number + 1].append(item)
