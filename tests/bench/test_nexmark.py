"""The benchmark of NEXMark's queries runs, on a few events and queries."""

from __future__ import annotations

from slicemill_lab.bench.inputs.nexmark_queries import ARRIVING, event_tables
from slicemill_lab.bench.nexmark import TOGETHER, NexmarkSizes, compare, played, tables


def test_queries_give_the_same_rows_alone_and_together() -> None:
    names = ("q02", "q12", "q13", "q18")
    result = compare(NexmarkSizes(rate=200, warm_s=1, measured_s=2, rounds=1), names)
    assert all(claim.holds for claim in result.claims if not claim.timed)
    assert list(result.figures["CPU seconds"]) == [*names, TOGETHER]
    (table,) = tables(result)
    assert table.row_count == len(names) + 1


def test_all_bids_of_all_seconds_are_played() -> None:
    seconds = [event_tables(number * 100, (number + 1) * 100, 100) for number in range(3)]
    _, rows = played(("q00", "q12"), seconds, warm=1)
    assert rows["q00"] == sum(len(second["bid"]) for second in seconds) == 3 * 92
    assert len(seconds[0][ARRIVING]) == 92 and rows["q12"] > 0
