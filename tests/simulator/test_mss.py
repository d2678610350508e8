from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.queues import FixedQueue, queue
from simulator.strategies import PIECES
from slicemill_lab.charts.charts import Piece, staircase_area
from slicemill_lab.policies.mss import MaximumSlopeSegment, mss_order

QUEUES = st.lists(st.lists(PIECES, max_size=3), min_size=1, max_size=3)


def total_latency(queues: Sequence[Sequence[Piece]], order: Sequence[tuple[int, int]]) -> float | Fraction:
    return staircase_area(queues[number][place] for number, place in order)


def interleavings(lengths: tuple[int, ...], places: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    """Yield all orders that preserve the order inside each queue."""
    if places == lengths:
        yield []
    for number, place in enumerate(places):
        if place < lengths[number]:
            after = (*places[:number], place + 1, *places[number + 1 :])
            for rest in interleavings(lengths, after):
                yield [(number, place), *rest]


def test_golden_g1_mss_finds_the_cheap_tuple_behind_the_expensive_tuple() -> None:
    queues = [[Piece(10, 1), Piece(1, 1)], [Piece(9, 1)]]
    order = mss_order(queues)
    assert order == [(0, 0), (0, 1), (1, 0)]
    assert total_latency(queues, order) == 10 + 11 + 20 == 41


@given(QUEUES)
def test_mss_is_optimal_among_all_interleavings(queues: list[list[Piece]]) -> None:
    lengths = tuple(map(len, queues))
    everything = list(interleavings(lengths, (0,) * len(queues)))
    order = mss_order(queues)
    assert order in everything
    assert total_latency(queues, order) == min(total_latency(queues, other) for other in everything)


@given(QUEUES)
def test_a_new_choice_of_the_steepest_segment_at_each_point_is_as_good_as_the_full_plan(
    queues: list[list[Piece]],
) -> None:
    policy = MaximumSlopeSegment()
    places = [0] * len(queues)
    order = []
    while ready := [number for number, pieces in enumerate(queues) if places[number] < len(pieces)]:
        views = [
            FixedQueue(
                number,
                np.array([float(piece.time) for piece in queues[number][places[number] :]]),
                np.array([float(piece.drop) for piece in queues[number][places[number] :]]),
            )
            for number in ready
        ]
        chosen = policy.choose(views, 0.0)
        order.append((chosen, places[chosen]))
        places[chosen] += 1
    best = float(total_latency(queues, mss_order(queues)))
    assert abs(float(total_latency(queues, order)) - best) <= 1e-9 * max(1.0, best)


def test_mss_prefers_the_first_queue_if_segments_are_equally_steep() -> None:
    assert MaximumSlopeSegment().choose([queue(3, [2, 2]), queue(5, [2])], 0.0) == 3
