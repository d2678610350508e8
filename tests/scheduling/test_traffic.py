"""Traffic: the times at which rows become readable."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.errors import SlicemillError
from slicemill.scheduling.rehearsal import SHAPES, Traffic, polls, read_recorded, total_rows


def test_steady_rows_arrive_evenly_and_fractions_of_rows_add_up() -> None:
    found = polls({"s": Traffic(10.0)}, 0.25, 1.0)
    assert [(poll.at, poll.rows) for poll in found] == [(0.25, 2), (0.5, 3), (0.75, 2), (1.0, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_traffic_shape_has_the_configured_mean_rate(shape: str) -> None:
    found = polls({"s": Traffic(1000.0, shape)}, 0.25, 400.0)
    assert total_rows(found) == pytest.approx(400_000, rel=0.01)
    assert [poll.at for poll in found] == sorted(poll.at for poll in found)


def test_bursts_have_several_times_the_mean_rate() -> None:
    rows = sorted(poll.rows for poll in polls({"s": Traffic(1000.0, "bursty")}, 0.25, 400.0))
    assert rows[-1] > 4 * 250  # in a burst
    assert len(rows) < 0.5 * 1600  # most polls return no rows


def test_equal_seeds_give_equal_rows_and_different_seeds_different_rows() -> None:
    traffic = {"s": Traffic(100.0, "bursty"), "t": Traffic(100.0, "poisson")}
    assert polls(traffic, 0.5, 50.0, seed=3) == polls(traffic, 0.5, 50.0, seed=3)
    assert polls(traffic, 0.5, 50.0, seed=3) != polls(traffic, 0.5, 50.0, seed=4)


def test_recorded_rows_arrive_at_their_recorded_times(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("0.5,10\n2,30\n9,60\n")
    traffic = read_recorded(path)
    assert traffic.rate == pytest.approx(100 / 9)
    assert [poll[::2] for poll in polls({"s": traffic}, 0.25, 5.0)] == [(0.5, 10), (2.0, 30)]


@pytest.mark.parametrize("text", ["", "1\n", "2,5\n1,5\n", "one,5\n", "1,-5\n"])
def test_a_file_without_recorded_rows_is_reported(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(SlicemillError, match=r"rows\.csv"):
        read_recorded(path)
