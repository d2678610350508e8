"""Lines: groups of queries whose rows may probe at the same time.

The queries of a line join the same streams, in the same order of FROM. A row may probe for a query once no
earlier row can arrive in the streams that the query joins (`operators.in_turn`). Other streams of the node
are ignored, and so is the row's own stream, which is in order:

    a: 5      d is silent. The row of a probes b and c for queries over a, b, c, and is stored.
    b: 7      For queries over a, b, d the row is late: it waits in their line until the watermark
    c: 6      of d reaches 5. Rows that it may match then are kept as long.
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
    """Queries that join the same inputs in the same order.

    `late` has their late rows by input.
    """

    inputs: tuple[int, ...]
    mask: NDArray[np.uint64]
    late: Mapping[int, Side]

    def complete(self, complete: Sequence[int]) -> int:
        """Return the lowest watermark of the line's inputs."""
        return min(complete[input_] for input_ in self.inputs)

    def below(self, known: Sequence[int]) -> dict[int, int]:
        """Return by input the timestamp below which rows may probe."""
        return dict(zip(self.inputs, borders([known[input_] for input_ in self.inputs]), strict=True))

    def due(self, firsts: Sequence[int | None]) -> tuple[int, ...] | None:
        """Return the watermarks needed by the first waiting row.

        None if no row waits. The row's own input has already reached the time of the row. All inputs of the
        line are therefore included.
        """
        waiting = [_first(firsts[input_], self.late[input_].next_ts()) for input_ in self.inputs]
        asked = due_in_turn(waiting)
        if asked is None:
            return None
        first = min(ts for ts in waiting if ts is not None)
        by_input = {i: max(ts, first) for i, ts in zip(self.inputs, asked, strict=True)}
        return tuple(by_input.get(input_, BEGINNING) for input_ in range(len(firsts)))

    def put_off(self, input_: int, rows: pa.Table, words: Words) -> None:
        """Store rows that other lines have processed as late rows of this line."""
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
    """Return the lines of the queries, whose inputs `joined` has by number.

    `late` has the stored late rows by line and input; lines without queries are deleted.
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
    """Return each input's watermark, or its last waiting timestamp if later."""
    found = []
    for number, told in enumerate(complete):
        waiting = [sides[number], *(line.late[number] for line in lines if number in line.late)]
        lasts = [ts for side in waiting if (ts := side.last_ts()) is not None]
        found.append(max([told, *lasts]))
    return found


def divided(ready: pa.Table, input_: int, lines: Sequence[tuple[Line, int]]) -> tuple[pa.Table, bool]:
    """Return the rows of an input that probe now.

    The second result is True if these are all rows of `ready`. The masks of the rows contain only the queries
    that the rows probe for. `lines` have the times below which rows may probe. Each row in `ready` may probe
    for at least one line.
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
