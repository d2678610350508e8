"""What a side of a join keeps: few slices, each row written a few times, nothing that nobody can reach."""

from __future__ import annotations

from math import log2

import numpy as np
import pyarrow as pa
import pytest

from slicemill.catalog.queries import FrameUnit, Window
from slicemill.operators.join.block import (
    BLOCK_ARRIVAL,
    BLOCK_TS,
    HASH,
    MASK,
    TIME,
    Block,
    QueryBits,
    group_by_hash,
)
from slicemill.operators.join.spec import JoinMember
from slicemill.operators.join.state import JoinSide, SideState, StoredSlice

SCHEMA = pa.schema(
    [(BLOCK_TS, pa.int64()), (BLOCK_ARRIVAL, pa.int64()), (HASH, pa.uint64()), (f"{MASK}0", pa.uint64())]
)
RUNS, ROWS = 400, 5


def _member(name: str, window: int | None) -> JoinMember:
    windows = (Window(FrameUnit.RANGE, window), Window(FrameUnit.RANGE, window))
    return JoinMember(name, windows, (None, None), None, ())


def _block(run: int, masks: list[int]) -> Block:
    table = pa.table(
        {
            TIME: pa.array(np.arange(run * ROWS, (run + 1) * ROWS)),
            HASH: pa.array(np.arange(ROWS, dtype=np.uint64) << np.uint64(40)),
            f"{MASK}0": pa.array(masks, pa.uint64()),
        }
    )
    return group_by_hash(table, 1)[0]


def _written(side: JoinSide, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    rows: list[int] = []
    stored = side.stored

    def count(block: Block) -> StoredSlice:
        rows.append(block.rows)
        return stored(block)

    monkeypatch.setattr(side, "stored", count)
    return rows


@pytest.mark.parametrize("window", [None, 100, 1000])
def test_slices_are_few_and_rows_are_written_a_few_times(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = JoinSide(SideState(), QueryBits({}, {}).assign_to([_member("q", window)]), "0", SCHEMA)
    written = _written(side, monkeypatch)
    for run in range(RUNS):
        side.add(_block(run, [1] * ROWS), (run + 1) * ROWS)
        slices = side.state.slices
        assert [s.latest for s in slices] == sorted(s.latest for s in slices), "oldest first"
        assert len(slices) <= 8 + log2(RUNS) + 2
        held = sum(s.rows for s in slices)
        reachable = min((run + 1) * ROWS, (window or RUNS * ROWS) - 1)
        assert reachable <= held <= reachable * 9 / 8 + ROWS
    assert sum(written) <= RUNS * ROWS * (log2(RUNS) + 2)


def test_a_slice_has_no_row_of_which_too_many_are_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row in five is wanted for long; the others only for as long as the short window."""
    monkeypatch.setattr("slicemill.operators.join.state._SMALL_ROWS", 1)
    query_bits = QueryBits({}, {}).assign_to([_member("short", 50), _member("long", 1500)])
    short, both = int(query_bits.mask(["short"])[0]), int(query_bits.mask(["short", "long"])[0])
    side = JoinSide(SideState(), query_bits, "0", SCHEMA)
    for run in range(RUNS):
        side.add(_block(run, [both, short, short, short, short]), (run + 1) * ROWS)
    held = sum(s.rows for s in side.state.slices)
    needed = 1500 / ROWS + 50 * 4 / ROWS
    assert needed - 1 <= held <= needed * 4 / 3 + 1500 / 8
    assert sum(s.wanted.get("long", 0) for s in side.state.slices) >= 1500 / ROWS - 1


def test_rows_from_before_a_query_are_not_for_it_even_if_it_takes_a_seat_that_was_free() -> None:
    before = QueryBits({}, {}).assign_to([_member("old", 100), _member("stays", 100)])
    side = JoinSide(SideState(), before, "0", SCHEMA)
    side.add(_block(0, [3] * ROWS), ROWS)
    after = before.assign_to([_member("stays", 100), _member("new", 100)])
    assert after.bits == {"stays": 1, "new": 0}
    changed = JoinSide(side.state, after, "0", SCHEMA)
    changed.change(after.same_queries(before))
    (stored,) = side.state.slices
    assert stored.wanted == {"stays": ROWS} and stored.live.tolist() == [2]


def test_rows_go_at_the_ages_that_are_planned_and_at_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slicemill.operators.join.state._SMALL_ROWS", 1)
    query_bits = QueryBits({}, {}).assign_to(
        [_member("short", 20), _member("middle", 100), _member("long", 300)]
    )
    masks = [int(query_bits.mask(names)[0]) for names in (["short"], ["middle"], ["long"])]
    held: dict[tuple[int, ...], int] = {}
    for cuts in ((20, 100, 300), (100, 300), (300,)):
        side = JoinSide(SideState(cuts_us=cuts), query_bits, "0", SCHEMA)
        for run in range(RUNS // 4):
            # Slices of one run each, so that merging does not take rows out in passing.
            monkeypatch.setattr(side, "_first_to_merge", lambda side=side: len(side.state.slices) - 1)
            side.add(_block(run, [masks[0], masks[0], masks[0], masks[1], masks[2]]), (run + 1) * ROWS)
        held[cuts] = sum(s.rows for s in side.state.slices)
    per_run = {(20, 100, 300): 3 * 20 + 100 + 300, (100, 300): 4 * 100 + 300, (300,): 5 * 300}
    for cuts, ages in per_run.items():
        assert held[cuts] == pytest.approx(ages / ROWS, abs=3 * ROWS)


def test_rows_that_have_gone_on_are_not_kept_with_the_few_that_wait() -> None:
    side = JoinSide(SideState(), QueryBits({}, {}).assign_to([_member("q", 100)]), "0", SCHEMA)
    many = 10_000
    numbers = np.arange(many)
    hashes, masks = numbers.astype(np.uint64), np.ones(many, np.uint64)
    side.arrive(pa.table([numbers, numbers, hashes, masks], schema=SCHEMA))
    assert side.ready(10).num_rows == 10
    assert (side.state.taken, len(side.state.waiting)) == (10, 1), "most of them are yet to come"
    assert side.ready(many - 1).num_rows == many - 11
    (waiting,) = side.state.waiting
    assert isinstance(waiting, pa.Table)
    assert (side.state.taken, waiting.num_rows, waiting.nbytes) == (0, 1, 32)
    assert side.next_ts() == side.last_ts() == many - 1
