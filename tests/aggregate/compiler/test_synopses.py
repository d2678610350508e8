"""Approximate aggregates: counts of ones, and the aggregates of examples/synopses.esl (M33, M38, M41)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.connectors.generators import nexmark
from slicemill_lab.mill.ones import Ones
from slicemill_oracle.runner import run_script

ROOT = Path(__file__).parents[3]


@settings(max_examples=60)
@given(st.lists(st.booleans(), max_size=200), st.integers(1, 60))
def test_the_estimated_count_is_within_half_of_the_true_count(bits: list[bool], n: int) -> None:
    counter = Ones()
    for index, bit in enumerate(bits):
        true = sum(bits[max(0, index + 1 - n) : index + 1])
        assert abs(counter.iterate(bit, n) - true) <= true / 2


def test_few_ones_are_counted_exactly_and_nulls_are_ignored() -> None:
    counter = Ones()
    assert [counter.iterate(bit, 4) for bit in (True, None, False, True, False, False, True)] == [
        1, 1, 1, 2, 1, 1, 2,
    ]  # fmt: skip


def test_memory_grows_with_the_logarithm_of_the_window() -> None:
    counter = Ones()
    for _ in range(5_000):
        counter.iterate(True, 4096)
    assert sum(map(len, counter._buckets)) <= 2 * 13


@pytest.fixture(scope="module")
def results() -> dict[str, list[tuple[int, ...]]]:
    done = run_script(bind((ROOT / "examples" / "synopses.esl").read_text(encoding="utf-8")).catalog, ROOT)
    return {query.name: [timed.row for timed in query.rows] for query in done.queries}  # type: ignore[misc]


@pytest.fixture(scope="module")
def bids() -> dict[str, list[int]]:
    return {name: column.tolist() for name, column in nexmark.columns("bid", 0, 500, rate=50).items()}


def test_every_auction_with_enough_bids_is_reported(
    results: dict[str, list[tuple[int, ...]]], bids: dict[str, list[int]]
) -> None:
    auctions = bids["auction"]
    windows = [auctions[max(0, index - 99) : index + 1] for index in range(len(auctions))]
    hot = [window[-1] for window in windows if window.count(window[-1]) >= 20]
    shown = [auction for auction, _ in results["hot_auctions"]]
    assert len(hot) > 100
    assert not Counter(hot) - Counter(shown)


def test_a_sample_contains_only_rows_of_its_window(
    results: dict[str, list[tuple[int, ...]]], bids: dict[str, list[int]]
) -> None:
    by_price = dict(zip(bids["price"], bids["ts"], strict=True))
    for ts, *sampled in results["sampled_prices"]:
        assert all(ts - 5_000_000 <= by_price[price] <= ts for price in sampled)
    columns = [set(column) for column in zip(*results["sampled_prices"], strict=True)][1:]
    assert all(len(column) > 3 for column in columns)
    assert columns[0] != columns[1] != columns[2]


def test_high_bids_are_counted_within_half_of_the_true_count(
    results: dict[str, list[tuple[int, ...]]], bids: dict[str, list[int]]
) -> None:
    seen: dict[int, list[bool]] = {}
    for (channel, estimate), of_bid, price in zip(
        results["high_bids"], bids["channel"], bids["price"], strict=True
    ):
        assert channel == of_bid
        seen.setdefault(channel, []).append(price > 100_000)
        true = sum(seen[channel][-100:])
        assert abs(estimate - true) <= true / 2
