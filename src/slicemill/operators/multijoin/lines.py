"""Whose turn it is: queries over the same streams, in the same order of FROM, wait for the same times.

A row probes for a query when nothing can come before it any more in the streams that the query joins
(`operators.in_turn`). Other streams of the node do not count, nor does the row's own, which is in order:

    a: 5      d is silent. The row of a probes b and c for queries over a, b, c, and is stored.
    b: 7      For those over a, b, d it is late: it waits in their line until d is known up to 5,
    c: 6      and what they may meet then is kept for as long.
    d: -
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.operators.in_turn import borders, due_in_turn
from slicemill.operators.join.arrays import Words
from slicemill.operators.join.block import SEQ, TS, column_numbers, mask_words
from slicemill.operators.join.side import Side, masked
from slicemill.operators.join.state import SideState
from slicemill.operators.join.windows import FOREVER, QueryBits
from slicemill.operators.multijoin.spec import MultiJoinMember
from slicemill.time import BEGINNING


@dataclass(frozen=True, slots=True)
class Line:
    """The queries that join these inputs in this order of FROM, and their late rows by input."""

    inputs: tuple[int, ...]
    mask: NDArray[np.uint64]
    late: Mapping[int, Side]

    def complete(self, complete: Sequence[int]) -> int:
        """Up to where all of its inputs are complete."""
        return min(complete[input_] for input_ in self.inputs)

    def below(self, known: Sequence[int]) -> dict[int, int]:
        """By input, the timestamp below which rows probe."""
        return dict(zip(self.inputs, borders([known[input_] for input_ in self.inputs]), strict=True))

    def due(self, firsts: Sequence[int | None]) -> tuple[int, ...] | None:
        """Up to where each input must be known for the first row that waits; None if none does.

        Of the row's own input that is its time, which is known: so all inputs of the line are named.
        """
        waiting = [_first(firsts[input_], self.late[input_].next_ts()) for input_ in self.inputs]
        asked = due_in_turn(waiting)
        if asked is None:
            return None
        first = min(ts for ts in waiting if ts is not None)
        by_input = {i: max(ts, first) for i, ts in zip(self.inputs, asked, strict=True)}
        return tuple(by_input.get(input_, BEGINNING) for input_ in range(len(firsts)))

    def put_off(self, input_: int, rows: pa.Table, words: Words) -> None:
        """Rows that others have taken, with their masks; those of this line are late."""
        wanted = words.any(axis=1)
        if wanted.any():
            self.late[input_].arrive(masked(rows, words).filter(pa.array(wanted)).combine_chunks())


def lines_of(
    members: Sequence[MultiJoinMember],
    joined: Mapping[str, Sequence[int]],
    seats: QueryBits,
    late: dict[str, dict[str, SideState]],
    side_of: Callable[[int, SideState], Side],
) -> list[Line]:
    """The lines of some members, whose inputs `joined` has by number.

    `late` is what was kept, by line and input; that of lines in which nobody stands any more goes.
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
        lines.append(Line(inputs, seats.mask([member.name for member in those]), waiting))
    return lines


def known_by(sides: Sequence[Side], lines: Sequence[Line], complete: Sequence[int]) -> list[int]:
    """By input, how far it is known: also by the last row that waits."""
    found = []
    for number, told in enumerate(complete):
        waiting = [sides[number], *(line.late[number] for line in lines if number in line.late)]
        lasts = [ts for side in waiting if (ts := side.last_ts()) is not None]
        found.append(max([told, *lasts]))
    return found


def divided(ready: pa.Table, input_: int, lines: Sequence[tuple[Line, int]]) -> tuple[pa.Table, bool]:
    """The rows that probe now, of one input, with the masks of those for whom; are they all that are ready?

    `lines` come with the times below which rows are theirs. Rows that are `ready` are so for one of them.
    """
    late = [line.late[input_].ready(below) for line, below in lines]
    times, whole = column_numbers(ready, TS), True
    counts = [len(times) if below == FOREVER else int(np.searchsorted(times, below)) for _, below in lines]
    now = ready
    if any(count < len(times) for count in counts):
        words = mask_words(ready, len(lines[0][0].mask))
        wanted, whole = np.zeros_like(words), False
        for (line, _), count in zip(lines, counts, strict=True):
            wanted[:count] |= words[:count] & line.mask
            line.put_off(input_, ready.slice(count), words[count:] & line.mask)
        now = masked(ready, wanted).filter(pa.array(wanted.any(axis=1)))
    if any(table.num_rows for table in late):
        now = pa.concat_tables([*late, now]).combine_chunks()
        now = now.take(pa.array(np.lexsort([column_numbers(now, name) for name in (SEQ, TS)])))
        whole = False
    return now.combine_chunks(), whole


def _first(*times: int | None) -> int | None:
    return min((ts for ts in times if ts is not None), default=None)
