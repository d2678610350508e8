"""Denoising of RFID readings as aggregates in ESL, against the theses' algorithms (M44-M46, G6, G7, X8).

Rows with marks replace the linked lists of the original: a scan of a list is a SELECT here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from aggregate.interpreter.test_uda import run
from slicemill.aggregates.definition import RowCall
from slicemill.aggregates.udf.lookup import resolve_aggregate
from slicemill.binder import bind
from slicemill.types import Row, Timed
from slicemill_oracle.operators.group_aggregate import GroupAggregateOperator

Emission = tuple[int, Row]  # emission time and reading (tag, ts)
FLUSH = -1  # time of rows that are emitted at the end of the stream

BASELINE = """CREATE AGGREGATE baseline(tag Int, ts Int, size Int, threshold Int) : (tag Int, ts Int) {
  TABLE w(wtag Int, wts Int, done Boolean);
  INITIALIZE: ITERATE: {
    INSERT INTO w VALUES (tag, ts, FALSE);
    DELETE FROM w WHERE wts < ts - size;
    INSERT INTO RETURN SELECT wtag, wts FROM w
      WHERE wtag = tag AND NOT done AND (SELECT count(*) FROM w WHERE wtag = tag) >= threshold;
    UPDATE w SET done = TRUE
      WHERE wtag = tag AND (SELECT count(*) FROM w WHERE wtag = tag) >= threshold; } };"""

LAZY = """CREATE AGGREGATE lazy(tag Int, ts Int, size Int, threshold Int) : (tag Int, ts Int) {
  TABLE w(wtag Int, wts Int, noise Boolean);
  INITIALIZE: ITERATE: {
    INSERT INTO RETURN SELECT wtag, wts FROM w WHERE wts < ts - size AND NOT noise;
    DELETE FROM w WHERE wts < ts - size;
    INSERT INTO w VALUES (tag, ts, TRUE);
    UPDATE w SET noise = FALSE
      WHERE wtag = tag AND (SELECT count(*) FROM w WHERE wtag = tag) >= threshold; }
  TERMINATE: { INSERT INTO RETURN SELECT wtag, wts FROM w WHERE NOT noise; } };"""

EAGER = """CREATE AGGREGATE eager(tag Int, ts Int, size Int, threshold Int) : (tag Int, ts Int) {
  TABLE w(n Int, wtag Int, wts Int, noise Boolean, done Boolean);
  TABLE arrivals(total Int);
  INITIALIZE: ITERATE: {
    INSERT INTO arrivals VALUES (0) WHERE NOT EXISTS (SELECT total FROM arrivals);
    UPDATE arrivals SET total = total + 1;
    INSERT INTO RETURN SELECT wtag, wts FROM w WHERE wts < ts - size AND NOT noise AND NOT done;
    DELETE FROM w WHERE wts < ts - size;
    INSERT INTO w SELECT total, tag, ts, TRUE, FALSE FROM arrivals;
    UPDATE w SET noise = FALSE
      WHERE wtag = tag AND (SELECT count(*) FROM w WHERE wtag = tag) >= threshold;
    INSERT INTO RETURN SELECT wtag, wts FROM w
      WHERE NOT noise AND NOT done AND NOT EXISTS (SELECT v.n FROM w AS v WHERE v.noise AND v.n < w.n);
    UPDATE w SET done = TRUE
      WHERE NOT noise AND NOT EXISTS (SELECT v.n FROM w AS v WHERE v.noise AND v.n < w.n); }
  TERMINATE: { INSERT INTO RETURN SELECT wtag, wts FROM w WHERE NOT noise AND NOT done; } };"""

# TERMINATE blocks, so lazy and eager run over tables. On a stream, expiry itself flushes.
EXPIRING = """CREATE STREAM readings(tag INT, ts INT);
CREATE WINDOW AGGREGATE expiring(tag Int, ts Int, threshold Int) : (tag Int, ts Int) {
  TABLE inwindow(wtag, wts, wthreshold); TABLE good(gtag Int, gts Int);
  INITIALIZE: ITERATE: {
    INSERT INTO good SELECT wtag, wts FROM inwindow
      WHERE wtag = tag AND (SELECT count(*) FROM inwindow WHERE wtag = tag) >= threshold
        AND NOT EXISTS (SELECT gts FROM good WHERE gtag = wtag AND gts = wts); }
  EXPIRE: { INSERT INTO RETURN VALUES (tag, ts)
              WHERE EXISTS (SELECT gts FROM good WHERE gtag = tag AND gts = ts);
            DELETE FROM good WHERE gts < ts; } };
SELECT expiring(tag, ts, {threshold})
  OVER (RANGE {size} MICROSECONDS PRECEDING ACTIVE EXPIRATION) FROM readings"""


def written(text: str, name: str, readings: list[Row], size: int, threshold: int) -> list[Emission]:
    definition = resolve_aggregate(name, bind(text).catalog)
    operator = GroupAggregateOperator([RowCall(definition, lambda row: (*row, size, threshold))])
    out = [timed for tag, ts in readings for timed in operator.process(0, Timed(ts, (tag, ts)))]
    flushed = [(FLUSH, timed.row) for timed in operator.finish()] if readings else []
    return [*((timed.ts, timed.row) for timed in out), *flushed]


# -- The algorithms, step by step -------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Reading:
    row: Row
    noise: bool = True
    done: bool = False


def baseline(readings: list[Row], size: int, threshold: int) -> list[Emission]:
    out: list[Emission] = []
    window: deque[Reading] = deque()
    for tag, ts in readings:
        window.append(Reading((tag, ts)))
        while window[0].row[1] < ts - size:
            window.popleft()
        same = [r for r in window if r.row[0] == tag]
        if len(same) >= threshold:
            out += [(ts, r.row) for r in same if not r.done]
            for r in same:
                r.done = True
    return out


def lazy(readings: list[Row], size: int, threshold: int) -> list[Emission]:
    out: list[Emission] = []
    window: deque[Reading] = deque()
    for tag, ts in readings:
        window.append(Reading((tag, ts)))
        while window[0].row[1] < ts - size:
            head = window.popleft()
            if not head.noise:
                out.append((ts, head.row))
        same = [r for r in window if r.row[0] == tag]
        if len(same) >= threshold:
            for r in reversed(same):
                if not r.noise:
                    break
                r.noise = False
    return [*out, *((FLUSH, r.row) for r in window if not r.noise)]


def eager(readings: list[Row], size: int, threshold: int) -> list[Emission]:
    out: list[Emission] = []
    window: deque[Reading] = deque()
    first_noise: Reading | None = None

    def emit(when: int, reading: Reading) -> None:
        reading.done = True
        out.append((when, reading.row))

    for tag, ts in readings:
        new = Reading((tag, ts))
        first_noise = first_noise or new
        window.append(new)
        searching = False
        while window[0].row[1] < ts - size:
            head = window.popleft()
            if not searching and head.noise:
                searching, first_noise = True, None
            elif searching and not head.noise:
                emit(ts, head)
        confirmed = sum(r.row[0] == tag for r in window) >= threshold
        for reading in list(window) if confirmed or searching else ():
            if confirmed and reading.row[0] == tag and reading.noise:
                if not searching and reading is first_noise:
                    searching, first_noise = True, None
                reading.noise = False
                # The order in the window decides, not the timestamp: readings may have equal timestamps.
                if searching or (first_noise in window and _before(window, reading, first_noise)):
                    emit(ts, reading)
            elif searching and not reading.noise:
                emit(ts, reading)
            elif searching:
                searching, first_noise = False, reading
                if not confirmed:
                    break
    return [*out, *((FLUSH, r.row) for r in window if not r.noise and not r.done)]


def _before(window: deque[Reading], one: Reading, other: Reading | None) -> bool:
    return other is not None and list(window).index(one) < list(window).index(other)


# -- Golden values ----------------------------------------------------------------------------------------

COLUMN_1 = zip(range(100, 1001, 100), (1, 4, 1, 1, 5, 1, 1, 1, 1, 1), strict=True)
COLUMN_2 = zip(range(200, 1101, 100), (2, 2, 2, 2, 2, 2, 8, 2, 9, 2), strict=True)
READINGS = [
    (tag, ts)
    for ts, _, tag in sorted([(ts, 1, t) for ts, t in COLUMN_1] + [(ts, 2, t) for ts, t in COLUMN_2])
]
LATER = [*READINGS, *((99, ts) for ts in range(1150, 2251, 100))]
GOOD = [reading for reading in READINGS if reading[0] in (1, 2)]


def at(when: int, *readings: Row) -> list[Emission]:
    return [(when, reading) for reading in readings]


def test_g6_baseline_denoising_emits_a_key_on_confirmation_and_so_out_of_order() -> None:
    assert written(BASELINE, "baseline", READINGS, 1000, 6) == [
        *at(700, *((2, ts) for ts in range(200, 701, 100))),
        *at(800, (1, 100), (1, 300), (1, 400), (1, 600), (1, 700), (1, 800)),
        *at(900, (1, 900), (2, 900)),
        *at(1000, (1, 1000)),
        *at(1100, (2, 1100)),
    ]


def test_g7_lazy_denoising_emits_in_order_when_readings_expire() -> None:
    assert written(LAZY, "lazy", READINGS, 1000, 6) == at(FLUSH, *GOOD)
    assert len(GOOD) == 16
    assert [e for e in written(LAZY, "lazy", LATER, 1000, 6) if e[0] != FLUSH] == [
        *at(1150, (1, 100)),
        *at(1250, (2, 200)),
        *at(1350, (1, 300), (2, 300)),
        *at(1450, (1, 400), (2, 400)),
        *at(1550, (2, 500)),
        *at(1650, (1, 600), (2, 600)),
        *at(1750, (1, 700), (2, 700)),
        *at(1850, (1, 800)),
        *at(1950, (1, 900), (2, 900)),
        *at(2050, (1, 1000)),
        *at(2150, (2, 1100)),
        *at(2250, (99, 1150)),
    ]


def test_g7_eager_denoising_emits_readings_that_no_noise_precedes() -> None:
    assert written(EAGER, "eager", READINGS, 1000, 6) == [*at(800, (1, 100)), *at(FLUSH, *GOOD[1:])]
    assert written(EAGER, "eager", LATER, 1000, 6) == [
        *at(800, (1, 100)),
        *at(1250, (2, 200), (1, 300), (2, 300), (1, 400), (2, 400)),
        *at(1550, (2, 500), (1, 600), (2, 600), (1, 700), (2, 700), (1, 800)),
        *at(1850, (1, 900), (2, 900), (1, 1000)),
        *at(2050, (2, 1100), *((99, ts) for ts in range(1150, 2051, 100))),
        *at(2150, (99, 2150)),
        *at(2250, (99, 2250)),
    ]


@st.composite
def noisy(draw: st.DrawFn) -> list[Row]:
    steps = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=18))
    readings, ts = [], 0
    for gap, tag in steps:
        ts += gap
        readings.append((tag, ts))
    return readings


@settings(max_examples=60)
@given(noisy(), st.integers(0, 8), st.integers(1, 4))
def test_denoising_in_esl_emits_the_readings_of_the_algorithms_at_the_same_times(
    readings: list[Row], size: int, threshold: int
) -> None:
    assert written(BASELINE, "baseline", readings, size, threshold) == baseline(readings, size, threshold)
    assert written(LAZY, "lazy", readings, size, threshold) == lazy(readings, size, threshold)
    assert written(EAGER, "eager", readings, size, threshold) == eager(readings, size, threshold)


@settings(max_examples=40)
@given(noisy(), st.integers(0, 8), st.integers(1, 4))
def test_x8_active_expiration_flushes_a_stream_in_the_order_of_lazy_denoising(
    readings: list[Row], size: int, threshold: int
) -> None:
    text = EXPIRING.replace("{size}", str(size)).replace("{threshold}", str(threshold))
    out = run(text, [Timed(ts, (tag, ts)) for tag, ts in readings])
    kept = [row for _, row in lazy(readings, size, threshold)]
    assert out == [Timed(ts + size, (tag, ts, tag, ts)) for tag, ts in kept]
