"""When rows become visible."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.errors import SlicemillError
from slicemill.scheduling.rehearsal import SHAPES, Traffic, polls, read_recorded, total_rows


def test_steady_rows_come_evenly_and_parts_of_rows_add_up() -> None:
    found = polls({"s": Traffic(10.0)}, 0.25, 1.0)
    assert [(poll.at, poll.rows) for poll in found] == [(0.25, 2), (0.5, 3), (0.75, 2), (1.0, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_keeps_the_mean_rate(shape: str) -> None:
    found = polls({"s": Traffic(1000.0, shape)}, 0.25, 400.0)
    assert total_rows(found) == pytest.approx(400_000, rel=0.01)
    assert [poll.at for poll in found] == sorted(poll.at for poll in found)


def test_bursts_are_several_times_the_mean() -> None:
    rows = sorted(poll.rows for poll in polls({"s": Traffic(1000.0, "bursty")}, 0.25, 400.0))
    assert rows[-1] > 4 * 250  # in a burst
    assert len(rows) < 0.5 * 1600  # most polls find nothing


def test_a_seed_gives_the_same_rows_and_another_one_others() -> None:
    traffic = {"s": Traffic(100.0, "bursty"), "t": Traffic(100.0, "poisson")}
    assert polls(traffic, 0.5, 50.0, seed=3) == polls(traffic, 0.5, 50.0, seed=3)
    assert polls(traffic, 0.5, 50.0, seed=3) != polls(traffic, 0.5, 50.0, seed=4)


def test_recorded_rows_come_as_recorded(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("0.5,10\n2,30\n9,60\n")
    traffic = read_recorded(path)
    assert traffic.rate == pytest.approx(100 / 9)
    assert [poll[::2] for poll in polls({"s": traffic}, 0.25, 5.0)] == [(0.5, 10), (2.0, 30)]


@pytest.mark.parametrize("text", ["", "1\n", "2,5\n1,5\n", "one,5\n", "1,-5\n"])
def test_a_file_with_something_else_is_told_as_such(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(SlicemillError, match=r"rows\.csv"):
        read_recorded(path)
