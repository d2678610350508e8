"""The theses' RFID aggregates and synopses as ESL text (M41-M43, M47, G19-G21)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregate.interpreter.test_uda import last_column, run
from slicemill.types import Timed

SECOND_US = 1_000_000

THEFT = """
CREATE STREAM tag_readings(tagid VARCHAR, tagtype VARCHAR, tagtime TIMESTAMP) ORDER BY tagtime;
CREATE AGGREGATE item_alarm(tagid, tagtype, tagtime) : char {
  TABLE inwindow(tid, ttype, ttime);
  INITIALIZE: ITERATE: {
    DELETE FROM inwindow WHERE tagtype='ap' AND ttype='item';
    DELETE FROM inwindow WHERE tagtype='item' AND ttype='item'
       AND EXISTS (SELECT tid FROM inwindow WHERE ttype='ap'); }
  EXPIRE: { INSERT INTO RETURN VALUES ('larceny alarm')
       WHERE tagtype='item' AND NOT EXISTS (SELECT tid FROM inwindow WHERE ttype='ap'); } };
SELECT tagid, tagtime, item_alarm(tagid, tagtype, tagtime)
  OVER (RANGE 5 SECONDS PRECEDING ACTIVE EXPIRATION) FROM tag_readings"""


@pytest.mark.parametrize(
    ("readings", "alarms_s"),
    [
        ([("item", 0), ("ap", 3)], []),
        ([("item", 20)], [25]),
        ([("ap", 40), ("item", 44)], []),
        ([("item", 50), ("ap", 55.5)], [55]),
        ([("item", 0), ("ap", 5)], []),
        (
            [("item", 0), ("ap", 3), ("item", 20), ("ap", 40), ("item", 44), ("item", 50), ("ap", 55.5)],
            [25, 55],
        ),
    ],
)
def test_g19_an_item_without_a_person_nearby_raises_an_alarm(
    readings: list[tuple[str, float]], alarms_s: list[int]
) -> None:
    tuples = [Timed(int(s * SECOND_US), (f"tag@{s}", kind, int(s * SECOND_US))) for kind, s in readings]
    expected = [
        Timed(s * SECOND_US, (f"tag@{s - 5}", "item", (s - 5) * SECOND_US, "larceny alarm")) for s in alarms_s
    ]
    assert run(THEFT, tuples) == expected


GROUPING = """
CREATE STREAM readings(tag VARCHAR, ts TIMESTAMP) ORDER BY ts;
CREATE AGGREGATE product_group(tag Varchar, ts Timestamp) : (tag Varchar, ts Timestamp, grp Int) {
  TABLE state(latest Timestamp, number Int);
  INITIALIZE: { INSERT INTO state VALUES (ts, 1); INSERT INTO RETURN VALUES (tag, ts, 1); }
  ITERATE: { UPDATE state SET number = number + 1 WHERE ts - latest > INTERVAL 2 SECONDS;
             UPDATE state SET latest = ts;
             INSERT INTO RETURN SELECT tag, ts, number FROM state; } };
SELECT product_group(tag, ts) FROM readings"""


def test_g20_a_gap_of_more_than_two_seconds_starts_a_new_group() -> None:
    times_us = [int(s * SECOND_US) for s in (0, 1, 2.5, 6, 7)]
    out = run(GROUPING, [Timed(ts, (f"tag@{ts}", ts)) for ts in times_us])
    groups = zip(times_us, [1, 1, 1, 2, 2], strict=True)
    assert out == [Timed(ts, (f"tag@{ts}", ts, group)) for ts, group in groups]


MERGING = """
CREATE STREAM readings(tag INT, ts INT);
CREATE AGGREGATE without_duplicates(tag Int, ts Int) : (tag Int, ts Int) {
  TABLE seen(key Int, latest Int);
  INITIALIZE: ITERATE: {
    INSERT INTO RETURN VALUES (tag, ts)
      WHERE NOT EXISTS (SELECT key FROM seen WHERE key = tag AND ts - latest <= 60);
    DELETE FROM seen WHERE key = tag;
    INSERT INTO seen VALUES (tag, ts); } };
SELECT without_duplicates(tag, ts) FROM readings"""


def test_g21_a_reading_close_to_the_previous_reading_of_its_key_is_a_duplicate() -> None:
    out = run(MERGING, [Timed(ts, (7, ts)) for ts in (0, 50, 90, 300)])
    assert out == [Timed(0, (7, 0)), Timed(300, (7, 300))]
    out = run(MERGING, [Timed(ts, (key, ts)) for ts, key in ((0, 1), (10, 2), (50, 1), (80, 2), (105, 1))])
    assert [timed.row for timed in out] == [(1, 0), (2, 10), (2, 80)]


# Two hash functions with 8 counters each; an unused counter has no row.
FREQUENT = """
CREATE STREAM items(item INT);
CREATE WINDOW AGGREGATE frequency(item Int) : Int {
  TABLE cells(h Int, cell Int, n Int); TABLE inwindow(witem Int);
  INITIALIZE: ITERATE: {
    INSERT INTO cells VALUES (1, pmod(hash(item, 1), 8), 0)
      WHERE NOT EXISTS (SELECT n FROM cells WHERE h = 1 AND cell = pmod(hash(item, 1), 8));
    INSERT INTO cells VALUES (2, pmod(hash(item, 2), 8), 0)
      WHERE NOT EXISTS (SELECT n FROM cells WHERE h = 2 AND cell = pmod(hash(item, 2), 8));
    UPDATE cells SET n = n + 1 WHERE cell = pmod(hash(item, h), 8);
    INSERT INTO RETURN SELECT min(n) FROM cells WHERE cell = pmod(hash(item, h), 8); }
  EXPIRE: { UPDATE cells SET n = n - 1 WHERE cell = pmod(hash(item, h), 8); } };
SELECT item, frequency(item) OVER (ROWS 9 PRECEDING) FROM items"""


@settings(max_examples=40)
@given(st.lists(st.integers(0, 20), max_size=30))
def test_m41_the_estimate_of_a_frequency_is_never_too_low(items: list[int]) -> None:
    out = last_column(run(FREQUENT, [Timed(ts, (item,)) for ts, item in enumerate(items)]))
    for index, (item, estimate) in enumerate(zip(items, out, strict=True)):
        window = items[max(0, index - 9) : index + 1]
        assert Counter(window)[item] <= estimate <= len(window)


def test_m41_the_estimate_of_a_single_item_is_exact() -> None:
    out = run(FREQUENT, [Timed(ts, (5,)) for ts in range(13)])
    assert last_column(out) == [*range(1, 11), 10, 10, 10]
