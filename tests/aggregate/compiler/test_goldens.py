"""Published values (G14-G18, G21) in machine code, and the error messages of the interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aggregate.compiler.comparing import MACHINE, PYTHON, call_of, compare, over, tuples_of
from slicemill import types as t
from slicemill.aggregates.udf.compiler.compiled import _load_cached
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.binder import bind
from slicemill.catalog.queries import Window
from slicemill.functions.vectors import to_values
from slicemill.types import Type
from support.stored import stored

DECAYED = """CREATE AGGREGATE decay_online_avg(Next Real) : Real { TABLE state(tsum Real, cnt Int);
  INITIALIZE: { INSERT INTO state VALUES (Next, 1); INSERT INTO RETURN VALUES (Next); }
  ITERATE: { UPDATE state SET tsum=0.9*tsum+1.1*Next, cnt=cnt+1;
             INSERT INTO RETURN SELECT tsum/cnt FROM state; } };"""
MYAVG = """CREATE WINDOW AGGREGATE myavg(Next Real) : Real {
  TABLE state(tsum Real, cnt Int); TABLE inwindow(wnext Real);
  INITIALIZE: { INSERT INTO state VALUES (Next,1); INSERT INTO RETURN VALUES (Next); }
  ITERATE: { UPDATE state SET tsum=tsum+Next, cnt=cnt+1; INSERT INTO RETURN SELECT tsum/cnt FROM state; }
  EXPIRE: { UPDATE state SET cnt=cnt-1, tsum=tsum-oldest().wnext; } };"""
MEAN = """CREATE AGGREGATE mean(Next Real) : Real { TABLE state(tsum Real, cnt Int);
  INITIALIZE: { INSERT INTO state VALUES (Next, 1); }
  ITERATE: { UPDATE state SET tsum=tsum+Next, cnt=cnt+1; }
  TERMINATE: { INSERT INTO RETURN SELECT tsum/cnt FROM state; } };"""
HIGHEST = """CREATE WINDOW AGGREGATE highest(Next Int) : Int { TABLE inwindow(w Int);
  INITIALIZE: ITERATE: { DELETE FROM inwindow WHERE w < Next; INSERT INTO RETURN VALUES (oldest()); }
  EXPIRE: { } };"""
TOTAL = """CREATE ALGEBRAIC AGGREGATE total(Next BigInt) : BigInt { TABLE state(s BigInt);
  INITIALIZE: { INSERT INTO state VALUES (Next); }
  ITERATE: { UPDATE state SET s = s + Next; }
  TERMINATE: { INSERT INTO RETURN SELECT s FROM state; } };"""
FRESH = """CREATE AGGREGATE fresh(seen timestamp) : timestamp { TABLE last(at timestamp);
  INITIALIZE: { INSERT INTO last VALUES (seen); INSERT INTO RETURN VALUES (seen); }
  ITERATE: {
    INSERT INTO RETURN SELECT seen FROM last WHERE seen - at > INTERVAL 60 SECONDS;
    UPDATE last SET at = seen; } };"""


def values(
    text: str, name: str, type_: Type, window: Window | None, given: list[object], form: str = MACHINE
) -> list[object]:
    """Return the results of one partition for tuples one microsecond apart, in two chunks."""
    catalog = bind(text).catalog
    uda = prepare(call_of(catalog, name, (type_,), window), catalog, forms=(form,))
    assert uda.how.form == form
    state, out = uda.start(), []
    rows = [(ts, 0, value) for ts, value in enumerate(given)]
    for chunk in (rows[:1], rows[1:]):
        state = stored(state)
        answers = uda.run(state, tuples_of(chunk, (type_,)))
        out += to_values(answers.columns[0], len(answers.numbers))
    return out


def test_g14_a_decayed_average_has_the_published_values() -> None:
    found = values(DECAYED, "decay_online_avg", t.DOUBLE, None, [10.0, 20.0, 30.0])
    assert found == pytest.approx([10, 15.5, 20.3])


def test_g15_an_average_of_three_rows_is_equal_with_and_without_expire() -> None:
    given: list[object] = [10.0, 20.0, 30.0, 40.0]
    assert values(MYAVG, "myavg", t.DOUBLE, over("ROWS", 2), given) == [10, 15, 20, 30]
    assert values(MEAN, "mean", t.DOUBLE, over("ROWS", 2), given) == [10, 15, 20, 30]


def test_g16_expiry_follows_row_numbers_after_deletes_from_the_window() -> None:
    assert values(HIGHEST, "highest", t.INT, over("ROWS", 2), [5, 3, 4, 1, 2, 6]) == [5, 5, 5, 4, 4, 6]


def test_g17_sums_over_panes_have_the_published_values() -> None:
    sums = [55, 210, 465, 820, 1275, 1775, 2275, 2775, 3275, 3775]
    assert values(TOTAL, "total", t.BIGINT, over("ROWS", 49, 10), list(range(1, 101))) == sums


def test_g18_a_window_with_a_longer_slide_skips_tuples() -> None:
    assert values(TOTAL, "total", t.BIGINT, over("ROWS", 9, 28), list(range(1, 57)), PYTHON) == [235, 515]


def test_g21_duplicates_are_dropped() -> None:
    seen: list[object] = [second * 1_000_000 for second in (0, 50, 90, 300)]
    assert values(FRESH, "fresh", t.TIMESTAMP, None, seen, PYTHON) == [0, 300_000_000]


@pytest.mark.parametrize("form", [MACHINE, PYTHON])
def test_compiled_calls_raise_the_errors_of_the_interpreter(form: str) -> None:
    largest = 2**63 - 1
    compare(
        TOTAL, "total", (t.BIGINT,), over("RANGE", None), [[(0, 0, largest)], [(1, 1, 5), (2, 0, 1)]], [form]
    )
    with pytest.raises(Exception, match="9223372036854775808 is out of the range of 64 bits"):
        values(TOTAL, "total", t.BIGINT, over("RANGE", None), [largest, 1], form)


def test_strings_that_no_state_references_are_released() -> None:
    text = """CREATE AGGREGATE previous(x varchar) : varchar { TABLE last(v varchar);
      INITIALIZE: { INSERT INTO last VALUES (x); }
      ITERATE: { INSERT INTO RETURN SELECT v FROM last; UPDATE last SET v = x; } };"""
    catalog = bind(text).catalog
    uda = prepare(call_of(catalog, "previous", (t.VARCHAR,), None), catalog)
    state, out = uda.start(), []
    words = [f"w{number}" for number in range(5000)]
    for first in range(0, len(words), 500):
        rows = [(number, 0, words[number]) for number in range(first, first + 500)]
        answers = uda.run(state, tuples_of(rows, (t.VARCHAR,)))
        out += to_values(answers.columns[0], len(answers.numbers))
    assert out == words[:-1]
    assert len(state.texts.values) < 3000


def test_damaged_machine_code_in_the_cache_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLICEMILL_CACHE", str(tmp_path))
    text = DECAYED.replace("decay_online_avg", "damaged")  # a module that no other test has loaded
    catalog = bind(text).catalog
    call = call_of(catalog, "damaged", (t.DOUBLE,), None)
    for _ in range(2):
        uda = prepare(call, catalog)
        answers = uda.run(uda.start(), tuples_of([(0, 0, 10.0), (1, 0, 20.0)], (t.DOUBLE,)))
        assert to_values(answers.columns[0], 2) == [10.0, 15.5]
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert files
        for file in files:
            file.write_bytes(b"nonsense")
        _load_cached.cache_clear()


def test_memory_pools_hold_little_more_than_the_window() -> None:
    catalog = bind(MYAVG).catalog
    uda = prepare(call_of(catalog, "myavg", (t.DOUBLE,), over("RANGE", 100)), catalog)
    state = uda.start()
    for first in range(0, 20_000, 1000):
        uda.run(state, tuples_of([(ts, ts % 7, 1.0) for ts in range(first, first + 1000)], (t.DOUBLE,)))
    assert len(state.arrays["window"]) < 1000
    assert np.all(state.arrays[uda._variants[0].loop]["window_rows"][:7] <= 15)
