"""Rates in the notation of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.capacity.rates import parse_rates
from slicemill.errors import SlicemillError
from slicemill.scheduling.rehearsal import Traffic

STREAMS = ["auction", "bid"]


@pytest.mark.parametrize(
    ("text", "traffic"),
    [
        ("5000/s", Traffic(5000.0)),
        ("5000", Traffic(5000.0)),
        ("1.5k/s", Traffic(1500.0)),
        ("120/min", Traffic(2.0)),
        ("7200 / hour : poisson", Traffic(2.0, "poisson")),
        ("2M/s:Bursty", Traffic(2e6, "bursty")),
    ],
)
def test_a_rate_has_rows_per_time_and_a_traffic_shape(text: str, traffic: Traffic) -> None:
    assert parse_rates([text], STREAMS) == {"auction": traffic, "bid": traffic}
    assert parse_rates([f"BID={text}", "1/s"], STREAMS) == {"auction": Traffic(1.0), "bid": traffic}


def test_recorded_rows_are_given_as_a_file_name(tmp_path: Path) -> None:
    path = tmp_path / "bids.csv"
    path.write_text("1,10\n2,30\n")
    found = parse_rates([f"bid={path}", "auction=1/s"], STREAMS)
    assert found["bid"] == Traffic(20.0, "recorded", ((1.0, 10), (2.0, 30)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "stream auction has no rate"),
        (["bid=5/s"], "stream auction has no rate"),
        (["bids=5/s"], "did you mean bid"),
        (["zzz=5/s"], "queries read auction, bid"),
        (["fast"], "is not a rate"),
        (["5/fortnight"], "rows per s"),
        (["5/s:wavy"], "steady, poisson, bursty"),
        (["0/s"], "use a rate above 0"),
        (["bid=nowhere.csv"], "cannot read nowhere.csv"),
    ],
)
def test_an_invalid_rate_is_reported(given: list[str], words: str) -> None:
    with pytest.raises(SlicemillError, match=words):
        parse_rates(given, STREAMS)
