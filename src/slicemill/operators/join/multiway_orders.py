"""Probing orders: which states a new row probes, in which order (S25, S49, S57).

The orders of all queries that start at the same stream form a tree. Queries share a branch as long as they
probe the same states by the same keys. The next state is the state with the fewest expected matches. States
without a common key are probed last. Results do not depend on the order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.codec.registry import stored_as
from slicemill.operators.alignment import borders, due_in_turn
from slicemill.operators.join.block import BLOCK_SEQ, BLOCK_TS, FOREVER, QueryBits, column_numbers, mask_words
from slicemill.operators.join.multiway_spec import KeyTable, Link, MultiJoinMember
from slicemill.operators.join.probe import Words
from slicemill.operators.join.state import JoinSide, SideState, replace_masks
from slicemill.operators.join.statistics import MeasuredStage
from slicemill.time import BEGINNING


@dataclass(frozen=True, slots=True)
class StateProbe:
    """Probe of an input's state.

    `by` is the key that is looked up. The keys in `checks` are then compared.
    """

    target: int
    by: Link | None
    checks: tuple[Link, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the probe.

        The name is equal for all queries, and after a restart.
        """
        links = [self.by, *self.checks] if self.by is not None else []
        return f"{self.target}:" + ",".join(f"{link.of}.{link.of_key}={link.to_key}" for link in links)


@dataclass(slots=True)
class ProbingNode:
    """Node of the tree of probing orders.

    A partial result of this node has a row of each input in `bound`. It is a result of the queries in `ends`.
    """

    bound: tuple[int, ...]
    ends: list[str] = field(default_factory=list)
    next: dict[StateProbe, ProbingNode] = field(default_factory=dict)

    def members(self) -> list[str]:
        """Return the queries that end at this node or below."""
        return [*self.ends, *(name for node in self.next.values() for name in node.members())]


def probing_tree(
    source: int,
    joined: Mapping[str, Sequence[int]],
    keys: KeyTable,
    expected: Callable[[StateProbe], float],
) -> ProbingNode:
    """Return the tree of probing orders that start at one input.

    `joined` has the inputs of each query. `expected` estimates the number of rows that a probe finds.
    """
    return _grown((source,), {name: own for name, own in joined.items() if source in own}, keys, expected)


def _grown(
    bound: tuple[int, ...],
    joined: Mapping[str, Sequence[int]],
    keys: KeyTable,
    expected: Callable[[StateProbe], float],
) -> ProbingNode:
    node = ProbingNode(bound)
    together: dict[StateProbe, dict[str, Sequence[int]]] = {}
    for name, inputs in joined.items():
        left = [one for one in inputs if one not in bound]
        if not left:
            node.ends.append(name)
            continue
        probes = [_probe(name, bound, target, keys, expected) for target in left]
        best = min(probes, key=lambda probe: (probe.by is None, expected(probe), probe.target))
        together.setdefault(best, {})[name] = inputs
    for probe, those in together.items():
        node.next[probe] = _grown((*bound, probe.target), those, keys, expected)
    return node


def _probe(
    name: str, bound: tuple[int, ...], target: int, keys: KeyTable, expected: Callable[[StateProbe], float]
) -> StateProbe:
    """Return the probe by the key with the fewest matches.

    The other keys are compared.
    """
    links = keys.links(name, bound, target)
    if not links:
        return StateProbe(target, None)
    by = min(links, key=lambda link: (expected(StateProbe(target, link)), link.to_key))
    return StateProbe(target, by, tuple(link for link in links if link != by))


# Lines: groups of queries that join the same streams in the same order of FROM.
#
# A row may probe for the queries of a line when no earlier row can arrive in the streams of the line
# (`operators.alignment`). The row's own stream is not considered, because its rows are in order. Streams that
# the line does not join are not considered either:
#
#     a: 5      Stream d is silent. The row of stream a probes b and c for queries over a, b, c, and is
#     b: 7      stored. For queries over a, b, d the row waits as a late row of their line, until the
#     c: 6      watermark of d reaches 5. Rows that it may match are stored until then.
#     d: -


@dataclass(frozen=True, slots=True)
class JoinOrderGroup:
    """Line: queries that join the same inputs in the same order.

    `late` has, by input, the rows that other lines have processed and that still wait in this line.
    """

    inputs: tuple[int, ...]
    mask: NDArray[np.uint64]
    late: Mapping[int, JoinSide]

    def complete(self, complete: Sequence[int]) -> int:
        """Return the lowest watermark of the line's inputs."""
        return min(complete[input_] for input_ in self.inputs)

    def below(self, known: Sequence[int]) -> dict[int, int]:
        """Return by input the timestamp below which rows may probe."""
        return dict(zip(self.inputs, borders([known[input_] for input_ in self.inputs]), strict=True))

    def due(self, firsts: Sequence[int | None]) -> tuple[int, ...] | None:
        """Return the watermarks needed by the first waiting row.

        None if no row waits. All inputs of the line have to reach at least the time of the row.
        """
        waiting = [_first(firsts[input_], self.late[input_].next_ts()) for input_ in self.inputs]
        asked = due_in_turn(waiting)
        if asked is None:
            return None
        first = min(ts for ts in waiting if ts is not None)
        by_input = {i: max(ts, first) for i, ts in zip(self.inputs, asked, strict=True)}
        return tuple(by_input.get(input_, BEGINNING) for input_ in range(len(firsts)))

    def store_late(self, input_: int, rows: pa.Table, words: Words) -> None:
        """Store rows that still wait in this line."""
        wanted = words.any(axis=1)
        if wanted.any():
            self.late[input_].arrive(replace_masks(rows, words).filter(pa.array(wanted)).combine_chunks())


def lines_of(
    members: Sequence[MultiJoinMember],
    joined: Mapping[str, Sequence[int]],
    query_bits: QueryBits,
    late: dict[str, dict[str, SideState]],
    side_of: Callable[[int, SideState], JoinSide],
) -> list[JoinOrderGroup]:
    """Return the lines of all queries.

    `joined` has the input numbers of each query. `late` has the stored late rows by line and input. Lines
    without queries are deleted from `late`.
    """
    found: dict[str, list[MultiJoinMember]] = {}
    for member in members:
        found.setdefault(repr(member.inputs), []).append(member)
    for name in late.keys() - found.keys():
        del late[name]
    lines = []
    for name, those in found.items():
        own, inputs = late.setdefault(name, {}), tuple(joined[those[0].name])
        waiting = {
            input_: side_of(input_, own.setdefault(called, SideState()))
            for input_, called in zip(inputs, those[0].inputs, strict=True)
        }
        lines.append(JoinOrderGroup(inputs, query_bits.mask([member.name for member in those]), waiting))
    return lines


def input_watermarks(
    sides: Sequence[JoinSide], lines: Sequence[JoinOrderGroup], complete: Sequence[int]
) -> list[int]:
    """Return each input's watermark, or its later last waiting timestamp."""
    found = []
    for number, told in enumerate(complete):
        waiting = [sides[number], *(line.late[number] for line in lines if number in line.late)]
        lasts = [ts for side in waiting if (ts := side.last_ts()) is not None]
        found.append(max([told, *lasts]))
    return found


def split_ready(
    ready: pa.Table, input_: int, lines: Sequence[tuple[JoinOrderGroup, int]]
) -> tuple[pa.Table, bool]:
    """Return the rows of an input that may probe now.

    `lines` has the timestamp below which rows may probe for each line. Each row of `ready` may probe for at
    least one line. The masks of the returned rows contain only the queries for which the rows probe. The
    second result is True if these are all rows of `ready`.
    """
    late = [line.late[input_].ready(below) for line, below in lines]
    times, whole = column_numbers(ready, BLOCK_TS), True
    counts = [len(times) if below == FOREVER else int(np.searchsorted(times, below)) for _, below in lines]
    now = ready
    if any(count < len(times) for count in counts):
        words = mask_words(ready, len(lines[0][0].mask))
        wanted, whole = np.zeros_like(words), False
        for (line, _), count in zip(lines, counts, strict=True):
            wanted[:count] |= words[:count] & line.mask
            line.store_late(input_, ready.slice(count), words[count:] & line.mask)
        now = replace_masks(ready, wanted).filter(pa.array(wanted.any(axis=1)))
    if any(table.num_rows for table in late):
        now = pa.concat_tables([*late, now]).combine_chunks()
        now = now.take(pa.array(np.lexsort([column_numbers(now, name) for name in (BLOCK_SEQ, BLOCK_TS)])))
        whole = False
    return now.combine_chunks(), whole


def _first(*times: int | None) -> int | None:
    return min((ts for ts in times if ts is not None), default=None)


# Statistics of streams and probes, from which the probing orders are planned (S52).
#
# Each subtask measures and plans for itself, and stores the statistics in its state.


_ENOUGH = 4_096  # minimum probes before a measurement is used
_PLANNED_AFTER = 20_000  # number of rows of all streams between two plans


@stored_as("multijoin.probes", version=1)
@dataclass(slots=True)
class ProbeMeasures:
    """Counts of a probe: probing partial results, candidates, and remaining results.

    Candidates have the same key, a matching age and a matching mask. Remaining results also pass the
    conditions.
    """

    probes: float = 0.0
    met: float = 0.0
    kept: float = 0.0

    @property
    def expected(self) -> float | None:
        """Return the mean results per partial result; None with few measurements."""
        return self.kept / self.probes if self.probes >= _ENOUGH else None


@stored_as("multijoin.measures", version=1)
@dataclass(slots=True)
class MultiJoinMeasures:
    """Rows by input, and statistics by probe.

    `since` counts the rows since the last plan.
    """

    rows: dict[str, int] = field(default_factory=dict)
    probes: dict[str, ProbeMeasures] = field(default_factory=dict)
    first_us: int | None = None
    reached_us: int = 0
    since: int = 0
    writing: MeasuredStage = field(default_factory=MeasuredStage)

    def arrived(self, input_: str, rows: int, first_us: int) -> None:
        self.rows[input_] = self.rows.get(input_, 0) + rows
        self.since += rows
        self.first_us = first_us if self.first_us is None else min(first_us, self.first_us)

    def record_probe(self, name: str, probes: int, met: int, kept: int) -> None:
        found = self.probes.setdefault(name, ProbeMeasures())
        found.probes += probes
        found.met += met
        found.kept += kept

    def is_due(self) -> bool:
        """Return True if orders should be planned again.

        If so, halve the counts of older probes.
        """
        if self.since < _PLANNED_AFTER:
            return False
        self.since = 0
        for found in self.probes.values():
            found.probes, found.met, found.kept = (n / 2 for n in (found.probes, found.met, found.kept))
        return True

    def begin_anew(self) -> None:
        """Reset all statistics, because the queries have changed."""
        self.rows, self.probes, self.first_us, self.since = {}, {}, None, 0

    @property
    def elapsed_s(self) -> float:
        return (self.reached_us - (self.first_us or 0)) / 1_000_000
