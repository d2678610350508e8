"""A derived window version against a hand-written window version, and against the base over each window."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aggregate.compiler.comparing import call_of, compare, flat, outcome, over
from slicemill.aggregates.udf.compiler.derive_expire import derive_window
from slicemill.aggregates.udf.compiler.layout import MACHINE, PYTHON
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.binder import bind
from slicemill.catalog.aggregates import BodyState
from slicemill.types import INT

BASE = """CREATE AGGREGATE spread(x Int) : Real { TABLE state(n BigInt, total BigInt, squares BigInt);
  INITIALIZE: { INSERT INTO state VALUES (1, x, x * x); }
  ITERATE: { UPDATE state SET n = n + 1, total = x + total, squares = squares + x * x; }
  TERMINATE: { INSERT INTO RETURN SELECT (n * squares - total * total) / n FROM state; } };"""
BY_HAND = """CREATE WINDOW AGGREGATE spread(x Int) : Real { TABLE inwindow(w Int);
  TABLE state(n BigInt, total BigInt, squares BigInt);
  INITIALIZE: { INSERT INTO state VALUES (1, x, x * x);
                INSERT INTO RETURN SELECT (n * squares - total * total) / n FROM state; }
  ITERATE: { UPDATE state SET n = n + 1, total = x + total, squares = squares + x * x;
             INSERT INTO RETURN SELECT (n * squares - total * total) / n FROM state; }
  EXPIRE: { UPDATE state
    SET n = n - 1, total = total - oldest(), squares = squares - oldest() * oldest(); } };"""
WINDOWS = [over("ROWS", 3), over("RANGE", 4), over("ROWS", 5, 2), over("RANGE", 6, 2), over("ROWS", 0)]


def rows_of(values: list[int | None], gaps: list[int]) -> list[tuple[int | None, ...]]:
    rows, ts = [], 0
    for number, (value, gap) in enumerate(zip(values, gaps, strict=False)):
        ts += gap
        rows.append((ts, number % 2, value))
    return rows


@settings(max_examples=20)
@given(
    values=st.lists(st.none() | st.integers(-1000, 1000), min_size=1, max_size=20),
    gaps=st.lists(st.integers(0, 3), min_size=20, max_size=20),
    window=st.sampled_from(WINDOWS),
    cut=st.integers(0, 20),
)
@example([None, 1, 2, 3, 4], [1] * 20, WINDOWS[0], 2)
def test_a_derived_window_version_gives_the_rows_of_the_base_over_each_window(
    values, gaps, window, cut
) -> None:
    rows = rows_of(values, gaps)
    compare(BASE, "spread", [INT], window, [rows[:cut], rows[cut:]], forms=(PYTHON,))


@pytest.mark.parametrize("window", WINDOWS[:2], ids=str)
def test_a_derived_window_version_gives_the_rows_of_a_hand_written_version(window) -> None:
    rows = rows_of([5, -3, 1000, 7, 0, 12, -8, 9, 9, 1], [1, 0, 2, 1] * 5)
    found = {}
    for text in (BASE, BY_HAND):
        catalog = bind(text).catalog
        uda = prepare(call_of(catalog, "spread", [INT], window), catalog, forms=(PYTHON,))
        found[text] = flat(outcome(uda, [INT], [rows[:4], rows[4:]], False))
    assert found[BASE] == found[BY_HAND]


def test_a_derived_window_version_does_not_reread_the_window() -> None:
    catalog = bind(BASE).catalog
    source = prepare(call_of(catalog, "spread", [INT], WINDOWS[0]), catalog, forms=(MACHINE,)).how.source
    assert "k.window_rows > preceding" in source
    assert "again" not in source


def test_a_failing_tuple_fails_as_in_the_base_version() -> None:
    rows = rows_of([1, 2, 2**31 - 1, 4], [1] * 20)
    compare(BASE, "spread", [INT], WINDOWS[0], [rows], forms=(PYTHON,))


REFUSED = {
    "doubles": "TABLE s(v Real); INITIALIZE: { INSERT INTO s VALUES (x); } "
    "ITERATE: { UPDATE s SET v = v + x; }",
    "overflow of 32 bits": "TABLE s(v Int); INITIALIZE: { INSERT INTO s VALUES (x); } "
    "ITERATE: { UPDATE s SET v = v + x; }",
    "different start": "TABLE s(v BigInt); INITIALIZE: { INSERT INTO s VALUES (x + 1); } "
    "ITERATE: { UPDATE s SET v = v + x; }",
    "a condition": "TABLE s(v BigInt); INITIALIZE: { INSERT INTO s VALUES (x); } "
    "ITERATE: { UPDATE s SET v = v + x WHERE v < 100; }",
    "not a sum": "TABLE s(v BigInt); INITIALIZE: { INSERT INTO s VALUES (x); } "
    "ITERATE: { UPDATE s SET v = v * x; }",
    "depends on its own value": "TABLE s(v BigInt); INITIALIZE: { INSERT INTO s VALUES (x); } "
    "ITERATE: { UPDATE s SET v = v + v; }",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_a_body_that_cannot_be_reverted_gets_no_derived_window_version(body: str) -> None:
    text = (
        f"CREATE AGGREGATE a(x Int) : Real {{ {body} TERMINATE: {{ INSERT INTO RETURN SELECT v FROM s; }} }};"
    )
    base, _ = bind(text).catalog.aggregates("a")
    assert base is not None
    assert derive_window(base) is None


def test_the_derived_window_version_has_an_expire_body() -> None:
    base, _ = bind(BASE).catalog.aggregates("spread")
    assert base is not None
    derived = derive_window(base)
    assert derived is not None and derived.window
    assert [
        len(derived.bodies[state]) for state in (BodyState.INITIALIZE, BodyState.ITERATE, BodyState.EXPIRE)
    ] == [
        2,
        2,
        1,
    ]
