"""Search for the join results of new rows.

A new row of a stream probes the states of the other streams, one after the other. No intermediate results
are stored. Each partial result has a mask of the queries that may still emit it. The masks of rows, the ages
of rows and the conditions clear bits of this mask. A partial result with an empty mask is dropped at once
(S48). Queries share probes as long as their probing orders agree. In a join of two streams, the first probe
completes the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.operators.join import emit, probe
from slicemill.operators.join.block import DATA, DEADLINE, FOREVER, TIME, WORD_BITS, ends_of, reach_of
from slicemill.operators.join.heavy_keys import KeyWork, key_work
from slicemill.operators.join.orders import ProbingNode, StateProbe, probing_tree
from slicemill.operators.join.partials import (
    BY_TIME,
    Indexes,
    KeyIndex,
    NewRows,
    PartialResults,
    ProbeTarget,
    ResidualCondition,
    Residuals,
    new_rows,
)
from slicemill.operators.join.prepare import hash_column, key_columns
from slicemill.operators.join.spec import KeyTable, Link, SharedJoin
from slicemill.operators.join.state import JoinLine, JoinSide, JoinState
from slicemill.shedding.load import ComparisonCounter
from slicemill.types import TIMESTAMP, Schema

# number of candidate pairs after which a probe starts a new batch
PARTIALS_PER_BLOCK = 1 << 19
# A partial result takes 16 bytes per input: the position and the time of one row.
_BYTES_PER_PARTIAL = 16
_NO_NUMBERS = np.zeros(0, np.int64)
_TIMESTAMP = arrow_type(TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows of a block that have the key of a partial result and may match it.

    The candidates of partial result i are the entries `starts[i]` to `ends[i]` of the block's index.
    """

    target: ProbeTarget
    index: KeyIndex
    starts: Int32s
    ends: Int32s


@dataclass(slots=True)
class Found:
    """Join results of the new rows with ranks in [begin, end).

    The rank of a new row is its position in output order. `by_line` maps the number of a line (queries with
    the same streams in the same FROM order) to the results of its queries. For joins of three or more
    streams, one object has all results, and `begin` and `end` are 0.
    """

    begin: int
    end: int
    by_line: dict[int, list[PartialResults]]


class ResultSearch:
    """Finds the results of new rows, for all queries of a shared join."""

    def __init__(
        self,
        operator: SharedJoin,
        keys: KeyTable,
        schemas: Sequence[Schema],
        state: JoinState,
        sides: Sequence[JoinSide],
        lines: Sequence[JoinLine],
    ) -> None:
        self._two_way = operator.two_way
        self._deadlines = bool(operator.deadlines)
        self._names = operator.inputs
        self._joined = {member.name: operator.ports(member) for member in operator.members}
        self._keys = keys
        self._key_columns = [key_columns(operator, own) for own in keys.keys]
        self._state = state
        self._sides = sides
        self._lines = lines
        self._residuals = Residuals(operator, schemas, state.query_bits)
        self._indexes = Indexes()
        # candidates that this micro-batch has found, by number of the new rows' input
        self._last_candidates: dict[int, list[Candidates]] = {}
        # number of results that this micro-batch has found, by name of the query
        self._rows_found: dict[str, int] = {}
        # counter of the pairs of rows that the last micro-batch compared
        self.compared = ComparisonCounter(len(self._names))
        self.shorten({})
        self.plan_orders()

    @property
    def index_bytes(self) -> int:
        """Return the bytes of memory of the join's indexes, which are not part of the join state."""
        return self._indexes.bytes

    def end_run(self) -> None:
        """Drop the candidates of the finished micro-batch, and the indexes of blocks that no longer exist."""
        self._last_candidates.clear()
        self._indexes.forget()

    def shorten(self, shares: Mapping[str, float]) -> None:
        """Shed load: let probes search only the newest part of the given queries' windows (S55).

        `shares` maps each query to the share of its windows to search. Stored rows are not evicted. Other
        queries use these rows, and so do the shortened queries after the overload.
        """
        self._reaches = [
            reach_of(self._state.query_bits, name, shares) if shares else side.reach
            for name, side in zip(self._names, self._sides, strict=True)
        ]

    # -- probing orders --------------------------------------------------------------------------------

    def plan_orders(self) -> None:
        """Choose the orders in which new rows probe the other inputs, from the current statistics."""
        self.orders: list[ProbingNode] = [
            probing_tree(source, self._joined, self._keys, self._expected)
            for source in range(len(self._names))
        ]
        self._masks: dict[int, NDArray[np.uint64]] = {}
        self._tests: dict[int, list[ResidualCondition]] = {}
        self._at_once: dict[int, NDArray[np.uint64]] = {}
        for root in self.orders:
            self._prepare(root)

    def _prepare(self, node: ProbingNode) -> None:
        """Compute the query mask and the residual conditions of each probe that follows a tree node."""
        for look, further in node.next.items():
            names = further.members()
            self._masks[id(further)] = self._state.query_bits.mask(names)
            self._tests[id(further)] = self._residuals.at(node.bound, look.target, names)
            at_once = [name for name in names if self._is_before(name, look.target, node.bound[0])]
            self._at_once[id(further)] = self._state.query_bits.mask(at_once)
            self._prepare(further)

    def _is_before(self, name: str, target: int, source: int) -> bool:
        """Return True if input `target` precedes input `source` in the FROM clause of a query.

        Of rows with the same time, the row of the last stream in FROM probes for the other rows.
        """
        own = self._joined[name]
        return own.index(target) < own.index(source)

    def _expected(self, look: StateProbe) -> float:
        """Return the mean number of rows that one probe is expected to find.

        The number is measured, or derived from the probe in the opposite direction, or assumed.
        """
        probes = self._state.measures.probes
        found = probes.get(look.name)
        if found is not None and found.expected is not None:
            return found.expected
        if look.by is None:
            return float(max(1, self._held(look.target)))
        turned = StateProbe(look.by.of, Link(look.target, look.by.to_key, look.by.of, look.by.of_key))
        other = probes.get(turned.name)
        if other is not None and other.expected is not None:
            share = other.expected / max(1, self._held(look.by.of))
            return share * max(1, self._held(look.target))
        return 0.1 ** len(look.checks) * (1 + self._held(look.target) / 1_000_000)

    def _held(self, input_: int) -> int:
        return sum(stored.rows for stored in self._sides[input_].state.slices)

    # -- runs ------------------------------------------------------------------------------------------

    def find(
        self, new: Sequence[NewRows], ranks: Mapping[int, Int32s], errors: dict[str, ExpressionError]
    ) -> Iterator[Found]:
        """Yield the join results of the new rows of all inputs, in output order of the new rows.

        `ranks` has the positions of the new rows in output order, by input. It is used by two-way joins,
        which find their results in batches of bounded size. Failed conditions are added to `errors`.
        """
        self._rows_found.clear()
        targets = [list(self._targets(number, new)) for number in range(len(new))]
        roots = [new_rows(source, rows.block) for source, rows in enumerate(new) if rows.block.rows]
        if self._two_way:
            yield from self._find_pairs(roots, new, ranks, targets, errors)
            return
        found: dict[int, list[PartialResults]] = {}
        for root in roots:
            self._probe_subtree(root, self.orders[root.source], targets, [], found, errors)
        yield Found(0, 0, found)

    def _find_pairs(
        self,
        roots: Sequence[PartialResults],
        new: Sequence[NewRows],
        ranks: Mapping[int, Int32s],
        targets: Sequence[Sequence[ProbeTarget]],
        errors: dict[str, ExpressionError],
    ) -> Iterator[Found]:
        """Yield the results of the new rows of a two-way join, in batches of bounded size."""
        probes = []
        for root in roots:
            ((look, node),) = self.orders[root.source].next.items()
            seen = new[root.source].seen
            some = self._candidates(root, look, node, targets[look.target], seen)
            self._last_candidates[root.source] = some
            if some:
                probes.append((root, look, node, some, seen))
        counts = [
            (ranks[root.source], own.ends - own.starts) for root, _, _, some, _ in probes for own in some
        ]
        for begin, end in _borders(counts, sum(rows.block.rows for rows in new)):
            found: dict[int, list[PartialResults]] = {}
            for root, look, node, some, seen in probes:
                grown = self._grown(root, look, node, some, seen, ranks[root.source], begin, end)
                if len(grown):
                    self._extend(grown, look, node, targets, [], found, errors)
            yield Found(begin, end, found)

    def work_by_key(self, new: Sequence[NewRows]) -> KeyWork:
        """Return the number of rows and compared pairs of the most frequent keys of a two-way join."""
        pairs = [np.zeros(rows.block.rows, np.int64) for rows in new]
        for source, some in self._last_candidates.items():
            for own in some:
                pairs[source] += own.ends - own.starts
        return key_work([(rows.block.hashes, own) for rows, own in zip(new, pairs, strict=True)])

    def _targets(self, number: int, new: Sequence[NewRows]) -> Iterator[ProbeTarget]:
        """Yield the blocks of one input that new rows of other inputs probe, oldest block first."""
        side = self._sides[number]
        others = [rows.block for other, rows in enumerate(new) if other != number and rows.block.rows]
        if not others:
            return
        earliest = min(int(block.times.min()) for block in others)
        for stored, block in side.blocks(earliest):
            yield ProbeTarget(block, stored.live, stored.earliest, stored.latest)
        own = new[number].stored
        if own.rows:
            yield ProbeTarget(own, side.everybody, int(own.times.min()), int(own.times.max()))

    def _probe_subtree(
        self,
        partials: PartialResults,
        node: ProbingNode,
        targets: Sequence[Sequence[ProbeTarget]],
        postponed: Sequence[ResidualCondition],
        found: dict[int, list[PartialResults]],
        errors: dict[str, ExpressionError],
    ) -> None:
        """Collect the partial results that are complete at a tree node, and probe the next inputs."""
        for number, line in enumerate(self._lines if node.ends else ()):
            names = [member.name for member in line.members if member.name in node.ends]
            if not names:
                continue
            own = partials.of(self._state.query_bits.mask(names))
            for name in names if postponed else ():
                self._residuals.finish(own, name, postponed, errors)
            for name in () if self._two_way else names:
                self._count_results(name, own, errors)
            failed = [name for name in names if name in errors]
            if postponed or failed:
                own.words &= ~self._state.query_bits.mask(failed)
                own = own.dropped()
            if len(own):
                found.setdefault(number, []).append(own)
        for look, further in node.next.items():
            mine = partials.of(self._masks[id(further)])
            for grown in self._probe_targets(mine, look, further, targets[look.target]):
                self._extend(grown, look, further, targets, postponed, found, errors)

    def _count_results(self, name: str, own: PartialResults, errors: dict[str, ExpressionError]) -> None:
        """Count the results of a query. Fail the query if its results take too much memory."""
        word, bit = divmod(self._state.query_bits.bits[name], WORD_BITS)
        rows = int(np.count_nonzero(own.words[:, word] & np.uint64(1 << bit)))
        self._rows_found[name] = self._rows_found.get(name, 0) + rows
        if self._rows_found[name] * _BYTES_PER_PARTIAL * len(self._sides) > emit.MOST_BYTES:
            errors.setdefault(name, emit.too_many_rows(self._rows_found[name]))

    def _extend(
        self,
        grown: PartialResults,
        look: StateProbe,
        node: ProbingNode,
        targets: Sequence[Sequence[ProbeTarget]],
        postponed: Sequence[ResidualCondition],
        found: dict[int, list[PartialResults]],
        errors: dict[str, ExpressionError],
    ) -> None:
        """Test the conditions of new partial results, and extend those that pass by further inputs.

        Conditions that raise errors are postponed.
        """
        met = len(grown)
        if self._deadlines:
            over = grown.times >= grown.numbers(0, DEADLINE)
            grown.words[over] = 0
        self._keep_unexpired(grown, node.bound[0], look.target)
        unknown = self._residuals.test(grown, self._tests[id(node)])
        kept = grown.dropped()
        if not self._two_way:
            self._state.measures.record_probe(look.name, 0, met, len(kept))
        if len(kept):
            self._probe_subtree(kept, node, targets, [*postponed, *unknown], found, errors)

    def _keep_unexpired(self, grown: PartialResults, source: int, target: int) -> None:
        """Clear the mask bits of queries for which a row of a partial result has expired.

        The source's row is the latest row. The stored row must not have expired at the time of the source's
        row, and the source's row must not have expired at the time of the stored row.
        """
        for input_, others in ((target, grown.times), (source, None)):
            for expiry, mask in self._sides[input_].expiry.masks.items():
                ends = ends_of(grown.column(input_, DATA + expiry.column, _TIMESTAMP), expiry)
                met = grown.numbers(target, TIME) if others is None else others
                grown.words[met >= ends] &= ~mask

    # -- probing ---------------------------------------------------------------------------------------

    def _probe_targets(
        self, partials: PartialResults, look: StateProbe, node: ProbingNode, targets: Sequence[ProbeTarget]
    ) -> Iterator[PartialResults]:
        """Yield the given partial results extended by a row of one more input, in batches of bounded size."""
        self._state.measures.record_probe(look.name, len(partials), 0, 0)
        if not len(partials):
            return
        some = self._candidates(partials, look, node, targets, _NO_NUMBERS)
        ranks = np.arange(len(partials), dtype=np.int32)
        for begin, end in _borders([(ranks, own.ends - own.starts) for own in some], len(partials)):
            grown = self._grown(partials, look, node, some, _NO_NUMBERS, ranks, begin, end)
            if len(grown):
                yield grown

    def _candidates(
        self,
        partials: PartialResults,
        look: StateProbe,
        node: ProbingNode,
        targets: Sequence[ProbeTarget],
        seen: Int64s,
    ) -> list[Candidates]:
        """Return the stored rows that have the key of a partial result and are in the longest window.

        `seen` has the number of earlier rows of the target's stream, if a window counts rows.
        """
        if look.by is None:
            hashes = np.zeros(len(partials), np.uint64)
        elif partials.is_whole_block and look.by.of_key == 0:
            hashes = partials.blocks[0].hashes
        else:
            hashes = partials.numbers(look.by.of, hash_column(look.by.of_key)).view(np.uint64)
        at_same_time = int(self._at_once[id(node)].any())
        key, side, reach = self._key_at(look), self._sides[look.target], self._reaches[look.target]
        found: list[Candidates] = []
        for target in targets:
            index = self._indexes.of(target.block, key)
            starts, ends = (np.empty(len(partials), np.int32) for _ in range(2))
            count = probe.find_spans(
                hashes, partials.times, seen, reach.longest_us, reach.most_rows,
                index.hashes, index.first, index.times, side.numbers(target.block),
                target.latest, target.earliest, at_same_time, starts, ends,
            )  # fmt: skip
            self._count_compared(look.target, partials, target, count)
            if count:
                found.append(Candidates(target, index, starts, ends))
        return found

    def _count_compared(self, input_: int, partials: PartialResults, target: ProbeTarget, count: int) -> None:
        """Record `count` comparisons, together with the ages of the compared stored rows.

        Ages are recorded as shares of the longest window.
        """
        longest = self._sides[input_].reach.longest_us
        # Partial results are ordered by hash, so the time of the middle one is a random sample.
        now = int(partials.times[len(partials) // 2])
        ages = (0, 0) if longest in (-1, FOREVER) else (now - target.latest, now - target.earliest)
        self.compared.add(input_, ages[0] / max(longest, 1), ages[1] / max(longest, 1), count)

    def _key_at(self, look: StateProbe) -> int:
        """Return the number of the key by which the probed blocks are searched.

        If the probe has no key, all rows of the blocks are candidates.
        """
        if look.by is not None:
            return look.by.to_key
        return BY_TIME if self._keys.keys[look.target] else 0

    def _grown(
        self,
        partials: PartialResults,
        look: StateProbe,
        node: ProbingNode,
        some: Sequence[Candidates],
        seen: Int64s,
        ranks: Int32s,
        begin: int,
        end: int,
    ) -> PartialResults:
        """Extend each partial result whose rank is in [begin, end) by all stored rows that match it."""
        mask, at_once = self._masks[id(node)], self._at_once[id(node)]
        # For the other queries, which are in `later`, rows of equal timestamps do not match in this probe.
        later = mask & ~at_once
        some_later = bool(at_once.any() and later.any())
        side, reach, measures = self._sides[look.target], self._reaches[look.target], self._state.measures
        parents, rows, words, begins = [], [], [], [0]
        inside = (ranks >= begin) & (ranks < end)
        for own in some:
            index, block = own.index, own.target.block
            most = int((own.ends - own.starts)[inside].sum())
            probes, met = np.empty(most, np.int32), np.empty(most, np.int32)
            wanted = np.empty((most, len(mask)), np.uint64)
            with measures.probing.doing(most):
                count = probe.find_pairs(
                    own.starts, own.ends, ranks, begin, end, partials.times, seen, partials.words,
                    index.times, side.numbers(block), index.words, own.target.live & mask,
                    reach.ends_us, reach.bits_us, reach.ends_rows, reach.bits_rows, probes, met, wanted,
                )  # fmt: skip
            measures.side(self._names[look.target]).compared += most
            probes, met, wanted = probes[:count], met[:count], wanted[:count]
            if some_later:
                wanted[index.times[met] == partials.times[probes]] &= ~later
            parents.append(probes)
            rows.append(met if index.order is None else index.order[met])
            words.append(wanted)
            begins.append(begins[-1] + count)
        of = _joined(parents, np.zeros(0, np.int32))
        grown = PartialResults(
            look.target,
            partials,
            of,
            [own.target.block for own in some],
            np.array(begins[:-1], np.int64),
            _joined(rows, of),
            _joined(words, np.zeros((0, len(mask)), np.uint64)),
        )
        return self._drop_mismatches(grown, look)

    def _drop_mismatches(self, grown: PartialResults, look: StateProbe) -> PartialResults:
        """Drop partial results whose rows have different join keys.

        So far, only the hashes of the key that was looked up are known to be equal.
        """
        agree: NDArray[np.bool_] | None = None
        for link in look.checks:
            mine = grown.numbers(link.to, hash_column(link.to_key))
            same = mine == grown.numbers(link.of, hash_column(link.of_key))
            agree = same if agree is None else agree & same
        if agree is not None and not agree.all():
            grown = grown.kept(agree)
        for link in (look.by, *look.checks) if look.by is not None else ():
            theirs, own = self._key_columns[link.of][link.of_key], self._key_columns[link.to][link.to_key]
            for (there, kind), (here, _) in zip(theirs, own, strict=True):
                equal = pc.equal(grown.column(link.of, there, kind), grown.column(link.to, here, kind))
                same = pc.fill_null(equal, False).to_numpy(zero_copy_only=False).astype(np.bool_)
                if not same.all():
                    grown.words[~same] = 0
        return grown


def _joined(parts: Sequence[NDArray[Any]], none: NDArray[Any]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else none


def _borders(counts: Sequence[tuple[Int32s, Int32s]], total: int) -> Iterator[tuple[int, int]]:
    """Divide the probing rows into batches, so that each batch compares a bounded number of candidates.

    A batch is a range of ranks, the positions of probing rows in output order.

    `counts` has arrays of ranks, with the number of candidates of each rank. A range has at least one rank.
    """
    if not counts:
        return
    by_rank = np.zeros(total, np.int64)
    for ranks, own in counts:
        by_rank[ranks] += own
    reached = np.cumsum(by_rank)
    first = 0
    while first < total:
        before = int(reached[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(reached, before + PARTIALS_PER_BLOCK, side="right")))
        yield first, end
        first = end
