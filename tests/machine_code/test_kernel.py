"""Kernels run as Python at first, and switch to machine code with the same results."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregate.compiler.comparing import call_of, over, tuples_of
from slicemill import types as t
from slicemill.aggregates.calls import Uda
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.binder import bind
from slicemill.catalog.queries import Window
from slicemill.errors import SlicemillError
from slicemill.functions.vectors import to_values
from slicemill.kernels import kernel as kernels
from slicemill.kernels.kernel import KernelFunction, interpret_kernels, kernel, names_of, signature_of
from slicemill.time import END
from support.stored import stored

PATIENCE_S = 120.0


class Both(NamedTuple):
    one: Any
    other: Any


def spread(values: np.ndarray, out: np.ndarray) -> tuple[float, int]:
    """Divide by zero, and exceed 64 bits."""
    least = values[0]
    count = np.int64(1)
    for i in range(len(values)):
        out[i] = values[i] / (values[i] - least)
        count *= np.int64(3)
    return out[-1], count


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SLICEMILL_CACHE", str(tmp_path))
    monkeypatch.setenv("SLICEMILL_COMPILE", "auto")


def same(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    return [(type(a), repr(a)) for a in first] == [(type(b), repr(b)) for b in second]


def test_a_kernel_switches_to_machine_code_after_enough_run_time(
    cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = KernelFunction(spread, {"error_model": "numpy"}, None)  # type: ignore[arg-type]
    values, out = np.arange(50.0), np.zeros(50)
    signature = made.signature((values, out))
    before = made(values, out), out.tolist()
    assert signature not in made._code, "it is new"
    monkeypatch.setattr(kernels, "PATIENCE", 0.0)
    while signature not in made._code:
        assert same(made(values, out), before[0]) and repr(out.tolist()) == repr(before[1])
        assert made._trials[signature].spent_s < PATIENCE_S
        time.sleep(0.001)
    assert same(made(values, out), before[0]) and repr(out.tolist()) == repr(before[1])
    # Another kernel of equal content reads the stored code when that is worth the time.
    again = KernelFunction(spread, {"error_model": "numpy"}, None)  # type: ignore[arg-type]
    monkeypatch.setattr(kernels, "PATIENCE", math.inf)
    monkeypatch.setattr(kernels, "LOAD_AFTER_S", 0.0)
    assert same(again(values, out), before[0])
    assert again._trials[signature].ended.wait(PATIENCE_S) and signature in again._code


def test_a_call_that_would_take_longer_as_python_waits_for_the_compilation(
    cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = KernelFunction(spread, {"error_model": "numpy"}, None)  # type: ignore[arg-type]
    monkeypatch.setattr(kernels, "PATIENCE", 1e-5)
    values = np.arange(1000.0)
    made(values, np.zeros(1000))
    trial = made._trials[made.signature((values, values))]
    assert trial.ended.is_set() and trial.spent_s == 0.0


def test_a_call_waits_for_stored_code_that_can_be_read_in_time(
    cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.arange(1_000_000.0)
    first = KernelFunction(spread, {"error_model": "numpy"}, None)  # type: ignore[arg-type]
    signature = first.signature((values, values))
    first.compile(signature)
    monkeypatch.setattr(kernels, "PATIENCE", math.inf)
    again = KernelFunction(spread, {"error_model": "numpy"}, None)  # type: ignore[arg-type]
    out = np.zeros(len(values))
    assert same(again(values, out), first(values, np.zeros(len(values))))
    assert signature in again._code and again._trials[signature].spent_s == 0.0


def test_a_function_that_cannot_be_compiled_stays_python(cold: None, monkeypatch: pytest.MonkeyPatch) -> None:
    @kernel
    def texts(values: np.ndarray) -> int:
        return len({str(value) for value in values})

    monkeypatch.setattr(kernels, "PATIENCE", 0.0)
    values = np.array([1, 2, 2])
    for _ in range(3):
        assert texts(values) == 2
        (trial,) = texts._trials.values()  # type: ignore[attr-defined]
        assert trial.ended.wait(PATIENCE_S)
    assert not texts._code  # type: ignore[attr-defined]


def test_types_have_the_names_of_numba() -> None:
    from numba import typeof

    from slicemill.kernels import numba_kernels

    records = np.zeros(3, np.dtype([("a", "i8"), ("b", "i4"), ("c", "?")], align=True))
    constant = np.arange(3)
    constant.flags.writeable = False
    plane = np.zeros((4, 6))
    given = (3, 2.0, True, np.bool_(True), np.int32(1), np.uint64(1), np.arange(3), records, constant)
    given += (plane, plane.T, plane[:, ::2], np.zeros(9, np.uint8)[1:].view(np.int64), (1, 2.0), (1, 1))
    given += (Both(1, 2.0), Both(np.arange(3), np.arange(3)))
    for value in given:
        signature = signature_of((value,))
        (kind,) = numba_kernels.numba_types(signature)
        assert kind == typeof(value)
        assert numba_kernels._names((kind,)) == names_of(signature)


# -- Calls of aggregates and models ------------------------------------------------------------------------

DEFINITIONS = """
CREATE MODEL trend(x REAL, y REAL) AS (n*sum(x*y) - sum(x)*sum(y)) / (n*sum(x^2) - sum(x)^2);
CREATE MODEL beat(x REAL) AS
  sum(cos(2*pi*(i - 1)/8)*x)^2 / 4 + sum(exp(x/100) * log(abs(x) + 1) * 1.5^(x/50));
CREATE WINDOW AGGREGATE average(next int) : int { TABLE state(total int, n int); TABLE inwindow(w int);
  INITIALIZE: { INSERT INTO state VALUES (next, 1); INSERT INTO RETURN VALUES (next); }
  ITERATE: { UPDATE state SET total = total + next, n = n + 1;
             INSERT INTO RETURN SELECT total / n FROM state; }
  EXPIRE: { UPDATE state SET total = total - oldest(), n = n - 1; } };
CREATE AGGREGATE recent(seen int) : bigint { TABLE kept(v int, done boolean);
  INITIALIZE: ITERATE: {
    INSERT INTO kept VALUES (seen, FALSE);
    DELETE FROM kept WHERE v < seen - 30;
    INSERT INTO RETURN SELECT v FROM kept WHERE NOT done AND (SELECT count(*) FROM kept AS k) >= 3 ORDER BY v;
    UPDATE kept SET done = TRUE WHERE (SELECT count(*) FROM kept AS k) >= 3; } };
"""
CALLS: dict[str, tuple[str, tuple[t.Type, ...], Window | None]] = {
    "trend by time": ("trend", (t.DOUBLE, t.INT), over("RANGE", 20)),
    "beat with slide": ("beat", (t.DOUBLE,), over("ROWS", 7, 2)),
    "average with active expiration": ("average", (t.INT,), over("RANGE", 10, None, True)),
    "recent in groups": ("recent", (t.INT,), None),
}
VALUES = {
    t.DOUBLE: st.sampled_from([0.0, -0.0, 0.1, 1.0, 1e-300, 1e300, -3.5, 99.75, 1 / 3]),
    t.INT: st.sampled_from([0, 1, -1, 7, 50, 2**31 - 1, -(2**31)]),
}


@st.composite
def rows_of(draw: st.DrawFn, types: tuple[t.Type, ...]) -> list[tuple[Any, ...]]:
    count = draw(st.integers(0, 25))
    row = st.tuples(st.integers(0, 6), st.integers(0, 2), *(VALUES[type_] for type_ in types))
    rows, ts = [], 0
    for step, partition, *values in draw(st.lists(row, min_size=count, max_size=count)):
        ts += step
        rows.append((ts, partition, *values))
    return rows


def outcome(
    uda: Uda, types: tuple[t.Type, ...], chunks: list[Any], as_python: list[bool], ends: bool
) -> list[Any]:
    state, seen = uda.start(), []
    try:
        for chunk, is_python in zip(chunks, as_python, strict=True):
            state = stored(state)
            complete = END if chunk is chunks[-1] else None
            if is_python:
                with interpret_kernels():
                    answers = uda.run(state, tuples_of(chunk, types), complete)
            else:
                answers = uda.run(state, tuples_of(chunk, types), complete)
            columns = [to_values(column, len(answers.numbers)) for column in answers.columns]
            numbers = (answers.numbers.tolist(), answers.ts.tolist(), answers.expired.tolist())
            seen += [repr(row) for row in zip(*numbers, *columns, strict=True)]
        if ends:
            results = uda.finish(state)
            columns = [to_values(column, len(results.groups)) for column in results.columns]
            seen += [repr(row) for row in zip(results.groups.tolist(), *columns, strict=True)]
    except SlicemillError as error:
        return [str(error)]
    return seen


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_call_can_switch_to_machine_code_at_any_row(name: str, data: st.DataObject) -> None:
    function, types, window = CALLS[name]
    catalog = bind(DEFINITIONS).catalog
    uda = prepare(call_of(catalog, function, types, window), catalog)
    assert uda.how.form == "machine code"
    rows = data.draw(rows_of(types))
    cut = data.draw(st.integers(0, len(rows)))
    chunks = [rows[:cut], rows[cut:], []]
    machine = outcome(uda, types, chunks, [False, False, False], window is None)
    assert outcome(uda, types, chunks, [True, False, False], window is None) == machine
    assert outcome(uda, types, chunks, [False, True, True], window is None) == machine
    assert outcome(uda, types, chunks, [True, True, True], window is None) == machine
