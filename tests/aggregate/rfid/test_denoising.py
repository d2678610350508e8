"""Baseline, lazy and eager denoising against an oracle and golden values (M44-M46, G6, G7, G22, X8)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.connectors.generators.rfid import Tags
from slicemill.extensions.rfid import Denoised, baseline, eager, expected_keys, lazy

Reading = tuple[int, int]  # key and time

COLUMN_1 = zip((1, 4, 1, 1, 5, 1, 1, 1, 1, 1), range(100, 1001, 100), strict=True)
COLUMN_2 = zip((2, 2, 2, 2, 2, 2, 8, 2, 9, 2), range(200, 1101, 100), strict=True)
READINGS = sorted([*COLUMN_1, *COLUMN_2], key=lambda reading: (reading[1], reading[0] in (2, 8, 9)))
LATER = [*READINGS, *((99, at) for at in range(1150, 2251, 100))]
GOOD = [reading for reading in READINGS if reading[0] in (1, 2)]


def four(readings: list[Reading], window: int, threshold: int) -> tuple[Denoised, ...]:
    """Return the results of baseline unordered, baseline ordered, lazy and eager."""
    keys = np.array([key for key, _ in readings], np.int64)
    at = np.array([at for _, at in readings], np.int64)
    return (
        baseline(at, keys, window, threshold, ordered=False),
        baseline(at, keys, window, threshold, ordered=True),
        lazy(at, keys, window, threshold),
        eager(at, keys, window, threshold),
    )


def by_moment(readings: list[Reading], found: Denoised) -> Iterator[tuple[int | None, list[Reading]]]:
    """Yield the emitted readings by time; None is the flush at the end."""
    for arrival in np.unique(found.by).tolist():
        out = [readings[r] for r in found.readings[found.by == arrival]]
        yield (readings[arrival][1] if arrival < len(readings) else None), out


def test_g6_baseline_denoising_emits_a_key_on_confirmation_and_so_out_of_order() -> None:
    unordered, *_ = four(READINGS, 1000, 6)
    assert [reading for _, out in by_moment(READINGS, unordered) for reading in out] == [
        *((2, at) for at in range(200, 701, 100)),
        *((1, at) for at in (100, 300, 400, 600, 700, 800)),
        *((1, 900), (2, 900), (1, 1000), (2, 1100)),
    ]


def test_g7_readings_without_successors_are_flushed_in_order_at_the_end() -> None:
    _, ordered, lazily, eagerly = four(READINGS, 1000, 6)
    assert dict(by_moment(READINGS, ordered)) == dict(by_moment(READINGS, lazily)) == {None: GOOD}
    assert dict(by_moment(READINGS, eagerly)) == {800: GOOD[:1], None: GOOD[1:]}


def test_g7_eager_denoising_emits_readings_that_no_noise_precedes() -> None:
    *_, eagerly = four(LATER, 1000, 6)
    assert list(by_moment(LATER, eagerly)) == [
        (800, [(1, 100)]),
        (1250, [(2, 200), (1, 300), (2, 300), (1, 400), (2, 400)]),
        (1550, [(2, 500), (1, 600), (2, 600), (1, 700), (2, 700), (1, 800)]),
        (1850, [(1, 900), (2, 900), (1, 1000)]),
        (2050, [(2, 1100), *((99, at) for at in range(1150, 2051, 100))]),
        (2150, [(99, 2150)]),
        (2250, [(99, 2250)]),
    ]


def test_g7_lazy_denoising_emits_expired_readings() -> None:
    _, ordered, lazily, _ = four(LATER, 1000, 6)
    moments = list(by_moment(LATER, lazily))
    assert moments == list(by_moment(LATER, ordered))
    assert moments[:-1] == [
        (1150, [(1, 100)]),
        (1250, [(2, 200)]),
        (1350, [(1, 300), (2, 300)]),
        (1450, [(1, 400), (2, 400)]),
        (1550, [(2, 500)]),
        (1650, [(1, 600), (2, 600)]),
        (1750, [(1, 700), (2, 700)]),
        (1850, [(1, 800)]),
        (1950, [(1, 900), (2, 900)]),
        (2050, [(1, 1000)]),
        (2150, [(2, 1100)]),
        (2250, [(99, 1150)]),
    ]
    assert moments[-1] == (None, [(99, at) for at in range(1250, 2251, 100)])


@st.composite
def noisy(draw: st.DrawFn) -> list[Reading]:
    at, readings = 0, []
    for gap, key in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=25)):
        at += gap
        readings.append((key, at))
    return readings


def non_noise(readings: list[Reading], window: int, threshold: int) -> list[int]:
    """Return the good readings by definition: some window that begins at a reading of the key has enough."""
    found = set()
    for key, start in readings:
        inside = [i for i, (k, at) in enumerate(readings) if k == key and start <= at <= start + window]
        if len(inside) >= threshold:
            found.update(inside)
    return sorted(found)


@settings(max_examples=60)
@given(noisy(), st.integers(0, 8), st.integers(1, 4))
@example([(1, 0), (2, 0), (1, 0)], 0, 2)  # a reading with the timestamp of the first noise, after it
def test_all_algorithms_emit_each_good_reading_once_and_only_the_baseline_out_of_order(
    readings: list[Reading], window: int, threshold: int
) -> None:
    unordered, ordered, lazily, eagerly = four(readings, window, threshold)
    good = non_noise(readings, window, threshold)
    assert sorted(unordered.readings.tolist()) == good
    assert ordered.readings.tolist() == lazily.readings.tolist() == eagerly.readings.tolist() == good
    assert ordered.by.tolist() == lazily.by.tolist()


@settings(max_examples=40)
@given(noisy(), st.integers(0, 8), st.integers(1, 4))
def test_no_algorithm_emits_before_the_unordered_baseline_or_after_lazy_denoising(
    readings: list[Reading], window: int, threshold: int
) -> None:
    unordered, _, lazily, eagerly = four(readings, window, threshold)
    earliest = dict(zip(unordered.readings.tolist(), unordered.by.tolist(), strict=True))
    for reading, early, late in zip(
        eagerly.readings.tolist(), eagerly.by.tolist(), lazily.by.tolist(), strict=True
    ):
        assert earliest[reading] <= early <= late


@settings(max_examples=40)
@given(noisy(), st.integers(0, 8), st.integers(1, 4))
def test_counters_exist_only_for_keys_in_the_window(
    readings: list[Reading], window: int, threshold: int
) -> None:
    _, _, lazily, eagerly = four(readings, window, threshold)
    in_window = [
        len({key for key, at in readings[: i + 1] if at >= now - window})
        for i, (_, now) in enumerate(readings)
    ]
    assert lazily.most_keys == eagerly.most_keys == max(in_window, default=0)


def test_g22_the_expected_number_of_keys_counts_tags_and_noise() -> None:
    assert expected_keys(1000, 10, 0.01) == 110
    readings = Tags(per_second=50, noise=0.01, seconds=20, seed=4).all_readings()["tag"]
    assert len(np.unique(readings)) == len(readings) / 10 + np.sum(readings < 0)
    expected = expected_keys(len(readings), 10, 0.01)
    assert abs(len(np.unique(readings)) - expected) < 0.05 * expected


def test_lazy_denoising_visits_the_fewest_readings_and_the_baselines_the_whole_window() -> None:
    readings = Tags(per_second=20, seconds=20, seed=2).all_readings()
    found = four(list(zip(readings["tag"], readings["at"], strict=True)), 2_000_000, 6)
    unordered, ordered, lazily, eagerly = (one.visits.sum() for one in found)
    assert lazily < eagerly < unordered == ordered
