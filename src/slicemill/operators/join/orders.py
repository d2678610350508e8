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

from slicemill.kernels.arrays import Int64s
from slicemill.operators.alignment import borders, due_in_turn
from slicemill.operators.join import probe
from slicemill.operators.join.block import BLOCK_SEQ, BLOCK_TS, FOREVER, QueryBits, column_numbers, mask_words
from slicemill.operators.join.probe import Words
from slicemill.operators.join.spec import JoinMember, KeyTable, Link, SharedJoin
from slicemill.operators.join.state import JoinSide, SideState, replace_masks
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
        best = min(probes, key=lambda look: (look.by is None, expected(look), look.target))
        together.setdefault(best, {})[name] = inputs
    for look, those in together.items():
        node.next[look] = _grown((*bound, look.target), those, keys, expected)
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
class JoinLine:
    """Queries that join the same inputs in the same order.

    `late` has, by input, the rows that other lines have processed and that still wait in this line. With
    `in_turn`, rows are read in (timestamp, input) order. Otherwise all rows of a timestamp are read together
    when the timestamp is complete.
    """

    members: tuple[JoinMember, ...]
    inputs: tuple[int, ...]
    mask: NDArray[np.uint64]
    late: Mapping[int, JoinSide]
    in_turn: bool = True

    def complete(self, complete: Sequence[int]) -> int:
        """Return the lowest watermark of the line's inputs."""
        return min(complete[input_] for input_ in self.inputs)

    def below(self, known: Sequence[int]) -> dict[int, int]:
        """Return by input the timestamp below which rows may probe."""
        own = [known[input_] for input_ in self.inputs]
        return dict(zip(self.inputs, borders(own) if self.in_turn else [min(own)] * len(own), strict=True))

    def ranks(self, times: Mapping[int, Int64s]) -> dict[int, Int64s]:
        """Return the rank of each row by (timestamp, stream, arrival).

        `times` has the timestamps of the new rows of each input, in arrival order.
        """
        found = {}
        for index, input_ in enumerate(self.inputs):
            own = times[input_]
            ranks = np.arange(len(own))
            for number, other in enumerate(self.inputs):
                if number != index:
                    ranks += probe.count_before(own, times[other], int(number < index))
            found[input_] = ranks
        return found

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
    operator: SharedJoin,
    query_bits: QueryBits,
    late: dict[str, dict[str, SideState]],
    side_of: Callable[[int, SideState], JoinSide],
    *,
    in_turn: bool = True,
) -> list[JoinLine]:
    """Return the lines of all queries.

    `late` has the stored late rows by line and input. Lines without queries are deleted from `late`. The only
    line of a two-way join has no late rows.
    """
    if operator.two_way:
        return [JoinLine(operator.members, (0, 1), query_bits.mask(list(query_bits.bits)), {}, in_turn)]
    found: dict[str, list[JoinMember]] = {}
    for member in operator.members:
        found.setdefault(repr(member.inputs), []).append(member)
    for name in late.keys() - found.keys():
        del late[name]
    lines = []
    for name, those in found.items():
        own, inputs = late.setdefault(name, {}), operator.ports(those[0])
        waiting = {
            input_: side_of(input_, own.setdefault(called, SideState()))
            for input_, called in zip(inputs, those[0].inputs, strict=True)
        }
        mask = query_bits.mask([member.name for member in those])
        lines.append(JoinLine(tuple(those), inputs, mask, waiting))
    return lines


def split_ready(ready: pa.Table, input_: int, lines: Sequence[tuple[JoinLine, int]]) -> tuple[pa.Table, bool]:
    """Return the rows of an input that may probe now.

    `lines` has the timestamp below which rows may probe for each line. Each row of `ready` may probe for at
    least one line. The masks of the returned rows contain only the queries for which the rows probe. The
    second result is True if these are all rows of `ready`.
    """
    if not any(line.late for line, _ in lines):
        return ready, True
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
