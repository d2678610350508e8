"""Generator of RFID readings (M48)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.connectors.generators.rfid import SLOTS_PER_SECOND, Tags, tags_of
from slicemill.errors import SlicemillError


@settings(max_examples=30)
@given(st.lists(st.integers(0, 150), max_size=4), st.sampled_from([0, 30_000, 200_000, 1_000_000]))
def test_readings_generated_in_parts_equal_readings_generated_at_once(edges: list[int], gap_us: int) -> None:
    tags = Tags(per_second=20, repeats=4, gap_us=gap_us, readers=3, seconds=11.3)
    whole = tags.all_readings()
    assert tags.slots is not None
    cuts = sorted({0, tags.slots, *(edge for edge in edges if edge < tags.slots)})
    parts = [tags.readings(first, last) for first, last in pairwise(cuts)]
    for name, column in whole.items():
        assert np.concatenate([part[name] for part in parts]).tolist() == column.tolist()


def test_tags_arrive_at_random_and_are_read_repeatedly() -> None:
    tags = Tags(per_second=100, seconds=100, noise=0, start_us=5)
    readings = tags.all_readings()
    times = {tag: readings["at"][readings["tag"] == tag] for tag in np.unique(readings["tag"]).tolist()}
    assert all(len(at) == 10 and np.all(np.diff(at) == 200_000) for at in times.values())
    assert np.all(np.diff(readings["at"]) >= 0)
    assert readings["at"][0] >= 5
    # In a Poisson process the mean of the gaps equals their standard deviation.
    gaps = np.diff(sorted(at[0] for at in times.values()))
    assert abs(gaps.mean() - 10_000) < 400
    assert abs(gaps.std() - 10_000) < 600


def test_the_configured_share_of_readings_is_noise_with_unknown_tags() -> None:
    readings = Tags(per_second=100, seconds=50, noise=0.2).all_readings()
    noise = readings["tag"][readings["tag"] < 0]
    assert abs(len(noise) / len(readings["tag"]) - 0.2) < 0.01
    assert len(np.unique(noise)) == len(noise)


def test_another_seed_gives_other_readings() -> None:
    first, again, other = (Tags(seconds=5, seed=seed).all_readings()["at"].tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_zero_seconds_have_no_readings() -> None:
    assert Tags(seconds=0).all_readings()["tag"].tolist() == []


def test_a_url_determines_the_arrivals_of_tags() -> None:
    options = {"Tags": "50", "gap": "100", "noise": "0.2", "seconds": "2.5", "speed": "rate-limited"}
    tags = tags_of("reading", options, frozenset(("speed",)))
    assert tags == Tags(per_second=50, gap_us=100_000, noise=0.2, seconds=2.5)
    assert tags.tag_slots == 2.5 * SLOTS_PER_SECOND


@pytest.mark.parametrize(
    ("stream", "options", "message"),
    [
        ("door", {}, "no stream 'door'"),
        ("reading", {"rate": "5"}, "no option rate; it has gap, noise"),
        ("reading", {"tags": "many"}, "takes numbers"),
        ("reading", {"tags": "0"}, "up to a million tags per second"),
        ("reading", {"noise": "5"}, "noise from 0 to 1"),
        ("reading", {"repeats": "0"}, "from 1 on"),
        ("reading", {"seconds": "-1"}, "seconds from 0 on"),
    ],
)
def test_an_error_in_a_url_is_reported(stream: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(SlicemillError, match=message):
        tags_of(stream, options)


def test_all_readings_of_an_endless_generator_is_an_error() -> None:
    with pytest.raises(SlicemillError, match="for ever"):
        Tags().all_readings()
