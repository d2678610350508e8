"""Windows over streams as instances: new and expired elements (C1, C2).

A stream is a sequence of pairs ⟨x, t⟩. A count window holds n elements and slides once it is full; a time
window holds the elements of an interval. Windows are sliding (overlapping), tumbling (adjacent) or
agglomerative (fixed begin, moving end).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from slicemill.extensions.models.terms import ModelError
from slicemill_lab.model.reference.interpret import Instance

Stream: TypeAlias = Iterable[tuple[Any, int]]


@dataclass(frozen=True, slots=True)
class SlidingCountWindow:
    """The last `size` elements, or all, with a slide every `step` elements.

    With `partial`, slides start before the window is full.
    """

    size: int | None
    step: int = 1
    partial: bool = False

    def __post_init__(self) -> None:
        if (self.size is not None and self.size < 1) or self.step < 1:
            raise ModelError("a data window and its slide have at least one element")

    def instances(self, stream: Stream) -> Iterator[Instance]:
        """Yield the instances of a stream.

        >>> list(SlidingCountWindow(2).instances([(5, 0), (6, 1), (7, 2)]))
        [Instance(new=(5, 6), leaving=0), Instance(new=(7,), leaving=1)]
        """
        held, waiting = 0, list[Any]()
        first = 0 if self.partial or self.size is None else self.size
        for place, (element, _) in enumerate(stream, start=1):
            waiting.append(element)
            if place < first or (place - first) % self.step:
                continue
            skipped = 0 if self.size is None else max(0, len(waiting) - self.size)
            new = tuple(waiting[skipped:])
            leaving = 0 if self.size is None else max(0, held + len(new) - self.size)
            yield Instance(new, leaving)
            held, waiting = held + len(new) - leaving, []


@dataclass(frozen=True, slots=True)
class SlidingTimeWindow:
    """Elements with t in (e - length, e] at multiples of `step`.

    Without a length, all elements up to e.
    """

    length: int | None
    step: int

    def __post_init__(self) -> None:
        if (self.length is not None and self.length < 1) or self.step < 1:
            raise ModelError("a time window and its slide last at least one unit of time")

    def instances(self, stream: Stream) -> Iterator[Instance]:
        """Yield the instances up to the last element's slide.

        Instances may have no new or no expired elements.

        >>> list(SlidingTimeWindow(length=2, step=1).instances([(5, 1), (6, 1), (7, 4)]))[:3]
        [Instance(new=(5, 6), leaving=0), Instance(new=(), leaving=0), Instance(new=(), leaving=2)]
        """
        waiting = list(stream)
        if not waiting:
            return
        inside: list[int] = []
        last = waiting[-1][1]
        end = _next_multiple(waiting[0][1], self.step)
        while end - self.step < last:
            oldest = None if self.length is None else end - self.length
            taken = _until(waiting, end)
            came = [pair for pair in waiting[:taken] if oldest is None or pair[1] > oldest]
            waiting = waiting[taken:]
            leaving = 0 if oldest is None else sum(time <= oldest for time in inside)
            inside = inside[leaving:] + [time for _, time in came]
            yield Instance(tuple(element for element, _ in came), leaving)
            end += self.step


def _next_multiple(time: int, step: int) -> int:
    return -(-time // step) * step


def _until(stream: Sequence[tuple[Any, int]], end: int) -> int:
    """Return the number of elements with a time up to `end`."""
    return sum(time <= end for _, time in stream)
