"""Heavy keys, decided from the work that subtasks report, so that no subtask has much more work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slicemill.api.mill import Mill
from slicemill.operators.join.heavy_keys import KeySample, KeyWork
from slicemill.operators.subtask import HeavyKey
from slicemill.plan.placement import placements_of
from slicemill.runtime import skew
from slicemill.runtime.skew import LIMITS, HeavyKeys, SkewedSide, SkewLimits, predict_work
from slicemill.testing import Clock, inline_pool
from slicemill.time import END
from support.engine import fed_mill, feed_rows, finish

SUBTASKS, WINDOW = 4, 1_000
ENOUGH_WORK = int(LIMITS.enough_work)
LIGHT = KeyWork(0, ENOUGH_WORK)
SLOW = KeyWork(1_000, 5 * ENOUGH_WORK, {7: (1_000, 4 * ENOUGH_WORK), 8: (10, 10)})


def told(keys: HeavyKeys, *works: KeyWork) -> HeavyKeys:
    for subtask, work in enumerate(works):
        keys.add(subtask, work)
    return keys


def test_the_key_that_makes_a_subtask_slow_is_spread() -> None:
    keys = told(HeavyKeys(SUBTASKS, WINDOW), LIGHT, LIGHT, SLOW, LIGHT)
    assert keys.decide(50)
    assert keys.keys == (HeavyKey(7, home=2, since=50),)
    assert HeavyKeys(SUBTASKS, WINDOW, keys.plain()).keys == keys.keys


def test_nothing_is_decided_before_enough_is_known_nor_when_subtasks_are_even() -> None:
    little = KeyWork(10, ENOUGH_WORK // 2, {7: (10, ENOUGH_WORK // 2)})
    assert not told(HeavyKeys(SUBTASKS, WINDOW), little).decide(50)
    assert not told(HeavyKeys(SUBTASKS, WINDOW), *(LIGHT,) * SUBTASKS).decide(50)
    assert not told(HeavyKeys(SUBTASKS, WINDOW), LIGHT, LIGHT, SLOW, LIGHT).decide(END)


def test_a_key_of_which_several_subtasks_tell_has_no_home() -> None:
    """Some subtask has rows from when it was heavy: nothing is decided before it is known."""
    keys = told(HeavyKeys(SUBTASKS, WINDOW), LIGHT, KeyWork(1, 1, {7: (1, 1)}), SLOW, LIGHT)
    assert not keys.decide(50)


def test_only_keys_of_the_slow_subtask_are_spread() -> None:
    busy = KeyWork(100, 2 * ENOUGH_WORK, {5: (100, 2 * ENOUGH_WORK)})
    keys = told(HeavyKeys(SUBTASKS, WINDOW), busy, LIGHT, SLOW, LIGHT)
    assert keys.decide(50)
    assert [(key.hash, key.home) for key in keys.keys] == [(7, 2)]


def test_a_key_whose_rows_cost_more_than_its_pairs_stays_where_it_is() -> None:
    """All subtasks would be given its rows: nothing would be gained."""
    rows = 4 * ENOUGH_WORK // int(LIMITS.row_work)
    slow = KeyWork(rows, rows, {7: (rows, rows)})
    assert not told(HeavyKeys(SUBTASKS, WINDOW), KeyWork(), KeyWork(), slow, KeyWork()).decide(50)


def test_a_key_that_has_become_light_goes_home_and_is_forgotten_when_nobody_replays_it() -> None:
    keys = told(HeavyKeys(SUBTASKS, WINDOW), LIGHT, LIGHT, SLOW, LIGHT)
    assert keys.decide(50)
    for _ in range(20):
        if told(keys, *(LIGHT,) * SUBTASKS).decide(400):
            break
    assert keys.keys == (HeavyKey(7, 2, 50, fades=400, over=400 + WINDOW),)
    # A query with a longer window comes.
    assert HeavyKeys(SUBTASKS, 3 * WINDOW, keys.plain()).keys[0].over == 400 + 3 * WINDOW
    assert not keys.forget(400 + WINDOW - 1)
    assert keys.forget(400 + WINDOW) and keys.keys == ()


def test_a_key_that_fades_may_become_heavy_again() -> None:
    fading = HeavyKey(7, 2, 50, fades=400, over=400 + WINDOW)
    keys = told(HeavyKeys(SUBTASKS, WINDOW, [(7, 2, 50, 400, 400 + WINDOW)]), LIGHT, LIGHT, SLOW, LIGHT)
    assert keys.keys == (fading,)
    assert keys.decide(500)
    assert keys.keys == (HeavyKey(7, 2, 50, 400, 500), HeavyKey(7, 2, 500))


def test_without_an_end_of_windows_a_key_stays_heavy() -> None:
    keys = told(HeavyKeys(SUBTASKS, None), LIGHT, LIGHT, SLOW, LIGHT)
    assert keys.decide(50)
    assert not any(told(keys, *(LIGHT,) * SUBTASKS).decide(400) for _ in range(20))


def test_what_lies_ahead_is_foreseen_from_samples_of_both_sides() -> None:
    sides = (SkewedSide(("a",), window_us=100), SkewedSide(("b", "c"), window_rows=50))
    samples = {
        "a": [KeySample(1_000, 1_000, {7: (2, 300.0)})],
        "b": [KeySample(500, 10, {7: (2, 200.0), 8: (0, 100.0)})],
        "c": [KeySample(20, 10, {7: (2, 10.0)})],
    }
    ahead = predict_work(sides, samples, SUBTASKS)
    # 300 rows of a meet a tenth of those of b and all of c; 210 meet the tenth of a that is in the window.
    assert ahead[2].keys == {7: (510, 300 * 30 + 210 * 30)}
    assert ahead[0].keys == {8: (100, 0)}
    assert [work.rows for work in ahead] == [100 + 227, 227, 510 + 227, 227]


def test_a_key_is_spread_before_the_first_run_over_many_of_its_rows() -> None:
    many = KeySample(100_000, WINDOW, {7: (2, 30_000.0)})
    keys = HeavyKeys(SUBTASKS, WINDOW, (), (SkewedSide(("a",), WINDOW), SkewedSide(("b",), WINDOW)))
    for log in "ab":
        keys.arrived(log, many)
    keys.predict(50)
    assert keys.keys == (HeavyKey(7, 2, 50),)
    keys.predict(60)
    assert keys.keys == (HeavyKey(7, 2, 50),), "nothing else has come"


def test_what_was_foreseen_and_did_not_come_is_believed_less() -> None:
    many = KeySample(1_000, WINDOW, {7: (2, 700.0)})
    keys = HeavyKeys(SUBTASKS, WINDOW, (), (SkewedSide(("a",), WINDOW), SkewedSide(("b",), WINDOW)))
    few = KeySample(1_000, WINDOW, {7: (2, 500.0)})
    for sample in (few, many):
        for log in "ab":
            keys.arrived(log, sample)
        keys.predict(50)
        assert keys.keys == ()
        for subtask in range(SUBTASKS):
            keys.add(subtask, KeyWork(500, 100))


QUERIES = """
CREATE STREAM A (k int, v int, ts timestamp) ORDER BY ts;
CREATE STREAM B (k int, v int, ts timestamp) ORDER BY ts;
CREATE STREAM pairs AS SELECT A.k, A.v, B.v AS w FROM A [RANGE 1 SECOND], B [RANGE 2 SECONDS]
  WHERE A.k = B.k AND A.v < B.v;
CREATE QUERY places AS SELECT k, v, w, sum(w) OVER (ROWS 2 PRECEDING) AS s FROM pairs;
CREATE QUERY close AS SELECT A.v, B.v AS w FROM A [RANGE 1 SECOND], B [RANGE 1 SECOND]
  WHERE A.k = B.k AND A.v = B.v;
"""
SECONDS = 14


def _played(home: Path, subtasks: int, disturbed: str = "") -> tuple[dict[str, list[object]], list[Any]]:
    """All rows of all logs, and the heavy keys after each second: one that is heavy for some of them."""
    clock, chance, heavy = Clock(1), np.random.default_rng(5), []
    mill = fed_mill(home, clock, inline_pool(), subtasks)
    try:
        mill.execute(QUERIES)
        mill.open()
        for second in range(SECONDS):
            for stream in "AB":
                times = second * 1_000_000 + np.sort(chance.integers(0, 1_000_000, 120))
                keys, values = chance.integers(0, 40, 120), chance.integers(0, 30, 120)
                if 1 <= second < 8:
                    keys[chance.random(120) < 0.5] = 3
                feed_rows(
                    mill, stream, list(zip(keys.tolist(), values.tolist(), times.tolist(), strict=True))
                )
            mill.dispatcher.run_some()
            heavy += [fields.get("heavy") for fields in mill.home.tasks.values() if "heavy" in fields]
            if disturbed == "by new cells" and second in (4, 7, 9):
                _index(mill, *{4: (6, "key"), 7: (5, "key"), 9: (2, "time")}[second])
            if disturbed == "by restarts" and second in (4, 5, 9):
                mill.close()
                mill = fed_mill(home, clock, inline_pool(), subtasks)
                mill.execute(QUERIES)
                mill.open()
        finish(mill)
        assert all(query.error is None for query in mill.queries.values())
        rows: dict[str, list[object]] = {}
        for name in ("pairs", "places", "close"):
            log = mill.home.logs[name]
            rows[name] = [
                tuple(row.values())
                for epoch in log.epochs()
                for row in log.read(epoch).drop_columns(["_arr"]).to_pylist()
            ]
        return rows, heavy
    finally:
        mill.close()


def _index(mill: Mill, subtasks: int, kind: str) -> None:
    for task in list(mill.dispatcher.running.tasks):
        found = placements_of(task.plan.task, task.plan.graph, subtasks)
        for placement in (one for one in found if one.kind.value == kind and task.subtasks > 1):
            assert mill.rescaler.rescale(task, placement)


@pytest.mark.parametrize("disturbed", ["not at all", "by restarts", "by new cells"])
def test_rows_and_their_numbers_are_those_of_one_subtask_while_a_key_is_heavy_for_some_time(
    tmp_path: Path, disturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skew, "LIMITS", SkewLimits(enough_work=2_000))
    one, none = _played(tmp_path / "one", 1)
    assert none == [] and len(one["pairs"]) > 1_000
    several, heavy = _played(tmp_path / "several", 4, disturbed)
    assert several == one
    begun = [keys for keys in heavy if keys]
    assert begun
    if disturbed == "by new cells":
        assert len({keys[0][2] for keys in begun}) > 1, "heavy again, in the new cells"
    else:
        assert begun[-1][0][3] < END, "it was heavy, and faded"
    assert {len(keys) for keys in begun} == {1}


def test_a_key_is_heavy_from_the_first_row_on_if_a_batch_has_many_of_its_rows(tmp_path: Path) -> None:
    chance = np.random.default_rng(2)
    mill = fed_mill(tmp_path, Clock(1), inline_pool(), 4)
    try:
        mill.execute(QUERIES.split("CREATE STREAM pairs")[0])
        mill.execute("CREATE QUERY q AS SELECT A.v FROM A [RANGE 1 SECOND], B [RANGE 1 SECOND] "
                     "WHERE A.k = B.k AND abs(A.v - B.v) <= 10")  # fmt: skip
        mill.open()
        for stream in "AB":
            times = np.sort(chance.integers(0, 3_000_000, 6_000))
            keys = np.where(chance.random(6_000) < 0.3, 3, chance.integers(0, 2_000, 6_000))
            values = chance.integers(0, 100_000, 6_000)
            feed_rows(mill, stream, list(zip(keys.tolist(), values.tolist(), times.tolist(), strict=True)))
        mill.dispatcher.run_all()
        ((key, *_),) = [fields["heavy"] for fields in mill.home.tasks.values() if fields.get("heavy")]
        assert HeavyKey(*key).since <= 0
    finally:
        mill.close()
