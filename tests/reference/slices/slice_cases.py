"""Random queries, arrivals and schedules for sliced joins, and the definition of the expected results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Protocol, TypeVar

from hypothesis import strategies as st

from slicemill.operators.join.slices.workload import Member, MemberSide, windows
from slicemill.types import Row, Timed
from slicemill_oracle.slices.chain import Chain
from slicemill_oracle.slices.items import SliceDelivery

Arrival = tuple[int, Timed]  # stream, tuple
Outputs = dict[str, Counter[Timed]]
Result = TypeVar("Result", covariant=True)


class Processing(Protocol[Result]):
    def process(self, stream: int, tuple_: Timed, /) -> Sequence[Result]: ...


def is_even(row: Row) -> bool:
    return int(str(row[1])) % 2 == 0


def is_third(row: Row) -> bool:
    return int(str(row[1])) % 3 == 0


def same_key(left: Row, right: Row) -> bool:
    return left[0] == right[0]


def anything(left: Row, right: Row) -> bool:
    return True


PREDICATES: list[Callable[[Row], bool] | None] = [None, None, is_even, is_third]

plain_sides = st.builds(MemberSide, st.integers(1, 8))
filtered_sides = st.builds(
    lambda window, predicate: MemberSide(window, predicate, 1 if predicate is None else 0.5),
    st.integers(1, 8),
    st.sampled_from(PREDICATES),
)


def members_of(sides: st.SearchStrategy[MemberSide], most: int = 4) -> st.SearchStrategy[list[Member]]:
    """Draw queries whose windows may differ between the streams."""
    apart = st.tuples(sides, sides)
    alike = st.tuples(sides, sides).map(
        lambda pair: (pair[0], MemberSide(pair[0].window, pair[1].predicate, pair[1].selectivity))
    )
    return st.lists(apart | alike, min_size=1, max_size=most).map(_named)


def members_on(streams: int, most: int) -> st.SearchStrategy[list[Member]]:
    """Draw queries on any number of streams, with a window and an optional predicate on each."""
    sides = st.tuples(*[filtered_sides] * streams)
    return st.lists(sides, min_size=1, max_size=most).map(_named)


def _named(sides: list[tuple[MemberSide, ...]]) -> list[Member]:
    return [Member(f"q{number}", one) for number, one in enumerate(sides)]


@st.composite
def arrivals(draw: st.DrawFn, streams: int = 2, most: int = 25) -> list[Arrival]:
    """Draw tuples (key, number) in timestamp order over all streams; equal timestamps in stream order."""
    drawn = draw(
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, streams - 1), st.integers(0, 1)), max_size=most)
    )
    ordered = sorted(drawn, key=lambda one: one[:2])
    return [(stream, Timed(ts, (key, number))) for number, (ts, stream, key) in enumerate(ordered)]


@st.composite
def any_ends(draw: st.DrawFn, members: Sequence[Member]) -> tuple[list[float], list[float]]:
    """Draw slice borders at random ages, independent of windows, as many on both streams."""
    longest = [windows(members, side)[-1] for side in (0, 1)]
    count = draw(st.integers(0, 4))
    cut = [
        [*sorted(draw(st.lists(st.integers(1, int(end)), min_size=count, max_size=count))), end]
        for end in longest
    ]
    pairs = list(dict.fromkeys(zip(*cut, strict=True)))
    return [a for a, _ in pairs], [b for _, b in pairs]


def expected(
    members: Iterable[Member],
    arrived: Sequence[Arrival],
    condition: Callable[[Row, Row], bool] = same_key,
    one_way: bool = False,
) -> Outputs:
    """Return every pair whose older tuple is in its window at the newer's arrival, by definition (S3)."""
    outputs: Outputs = {}
    for one in members:
        found: Counter[Timed] = Counter()
        for index, (stream, newer) in enumerate(arrived):
            for other, older in arrived[:index]:
                if other == stream or (one_way and stream == 0):
                    continue
                left, right = (newer, older) if stream == 0 else (older, newer)
                wanted = [
                    side.predicate is None or (callable(side.predicate) and side.predicate(tuple_.row))
                    for side, tuple_ in zip(one.sides, (left, right), strict=True)
                ]
                young = newer.ts - older.ts < one.sides[other].window
                if young and all(wanted) and condition(left.row, right.row):
                    found[Timed(newer.ts, left.row + right.row)] += 1
        outputs[one.query] = found
    return outputs


def run_through(join: Processing[Result], arrived: Iterable[Arrival]) -> list[Result]:
    """Return the results of a join that processes each tuple completely before the next arrives."""
    return [one for stream, tuple_ in arrived for one in join.process(stream, tuple_)]


def by_query(members: Iterable[Member], deliveries: Iterable[SliceDelivery]) -> Outputs:
    outputs: Outputs = {one.query: Counter() for one in members}
    for query, result in deliveries:
        outputs[query][result] += 1
    return outputs


def run_at_random(
    chain: Chain,
    arrived: Sequence[Arrival],
    seed: int,
    each_step: Callable[[], None] = lambda: None,
    meanwhile: Callable[[Random], None] = lambda random: None,
) -> list[SliceDelivery]:
    """Feed a chain while its slices run in random order, at random speed, with other events in between."""
    random = Random(seed)
    for stream, tuple_ in arrived:
        chain.arrive(stream, tuple_)
        each_step()
        for _ in range(random.randrange(5)):
            if ready := chain.ready():
                chain.run(random.choice(ready))
                each_step()
        meanwhile(random)
    chain.drain()
    return chain.take()


seeds = st.integers(0, 2**32)
