"""Aggregates written in Python run through the same entry points, compiled if Numba supports them (M38)."""

from __future__ import annotations

import pytest

from aggregate.compiler import comparing
from aggregate.compiler.comparing import MACHINE, Row, compare, over
from slicemill import types as t
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.binder import bind
from slicemill.catalog.queries import Window

SPREAD = "CREATE AGGREGATE spread(x real) : real LANGUAGE PYTHON AS 'aggregate.compiler.classes:Spread';"
BALANCE = """CREATE WINDOW AGGREGATE balance(x real) : (a real, n bigint)
    LANGUAGE PYTHON AS 'aggregate.compiler.classes:Balance';"""
WORDS = "CREATE AGGREGATE words(x real) : real LANGUAGE PYTHON AS 'aggregate.compiler.classes:Words';"

PLAIN: list[list[Row]] = [
    [(0, 0, 1.5), (1, 1, -2.0), (1, 0, 4.0)],
    [(3, 1, 0.25), (4, 0, -1.0), (8, 0, 2.0)],
]
WITH_NULLS: list[list[Row]] = [*PLAIN, [(9, 0, None), (9, 1, 3.0)], [(12, 2, None), (13, 0, 7.0)]]


@pytest.mark.parametrize("chunks", [PLAIN, WITH_NULLS], ids=["plain", "nulls"])
@pytest.mark.parametrize("window", [None, over("RANGE", 3)], ids=str)
def test_a_numeric_base_class_is_compiled_to_machine_code(
    window: Window | None, chunks: list[list[Row]]
) -> None:
    compare(SPREAD, "spread", (t.DOUBLE,), window, chunks, [MACHINE])


@pytest.mark.parametrize("chunks", [PLAIN, WITH_NULLS], ids=["plain", "nulls"])
def test_a_numeric_window_class_is_compiled_to_machine_code(chunks: list[list[Row]]) -> None:
    compare(BALANCE, "balance", (t.DOUBLE,), over("ROWS", 1), chunks, [MACHINE])


def test_a_class_that_numba_rejects_runs_as_python_with_a_reason() -> None:
    compare(WORDS, "words", (t.DOUBLE,), None, WITH_NULLS, [MACHINE], must=False)
    catalog = bind(WORDS).catalog
    how = prepare(comparing.call_of(catalog, "words", (t.DOUBLE,), None), catalog).how
    why = "aggregate.compiler.classes:Words does not declare its state as annotated numbers"
    assert str(how) == f"interpreter, because {why}"
