"""Windows as row ranges.

Rows are sorted by partition, then by time. A window is a range [start, stop) of rows with an end time
`end`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slicemill.columns.intervals import Numbers, Places
from slicemill.machine_code.kernel import kernel


class RunSpans(NamedTuple):
    starts: Places
    stops: Places
    ends: Places

    def in_order(self, by: Places) -> RunSpans:
        return self.take(np.argsort(by, kind="stable"))

    def take(self, places: Places) -> RunSpans:
        return RunSpans(self.starts[places], self.stops[places], self.ends[places])


@kernel
def windows_of_time(
    partitions: Numbers, begins: Places, slide: int, extent: int, first: int, last: int
) -> tuple[Places, Places, Places]:
    """Return the non-empty windows that end at multiples of `slide`.

    `first` and `last` limit these multiples. A window with end e contains the rows of its partition that
    begin in [e - extent, e). Periods without rows are skipped.
    """
    starts, stops, ends = np.empty(16, np.int64), np.empty(16, np.int64), np.empty(16, np.int64)
    found, head = 0, 0
    while head < len(begins):
        tail = head
        while tail < len(begins) and partitions[tail] == partitions[head]:
            tail += 1
        number = max(first, begins[head] // slide + 1)
        start = stop = head
        while number <= last:
            end = number * slide
            while stop < tail and begins[stop] < end:
                stop += 1
            while start < tail and begins[start] < end - extent:
                start += 1
            if start == tail:
                break
            if start == stop:
                number = max(number + 1, begins[start] // slide + 1)
                continue
            if found == len(starts):
                starts, stops, ends = _longer(starts), _longer(stops), _longer(ends)
            starts[found], stops[found], ends[found] = start, stop, end
            found += 1
            number += 1
        head = tail
    return starts[:found], stops[:found], ends[:found]


@kernel
def _longer(values: Places) -> Places:
    out = np.empty(2 * len(values), np.int64)
    for place in range(len(values)):
        out[place] = values[place]
    return out
