"""Aggregates written in Python (M38)."""

from __future__ import annotations

import sys
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest

from aggregate.interpreter.test_uda import PRICES, last_column, over_table, run, stream
from slicemill.aggregates.frames import Inwindow
from slicemill.errors import SlicemillError


class Total:
    """Blocking aggregate, whose arguments are converted to the declared types."""

    def initialize(self, value: float) -> None:
        assert isinstance(value, float)
        self.total = value

    def iterate(self, value: float) -> None:
        self.total += value

    def terminate(self) -> float:
        return self.total


class Echo:
    """Aggregate without TERMINATE that returns its argument as many times as the argument says."""

    def initialize(self, value: int) -> list[int]:
        return [value] * value

    iterate = initialize


class Range:
    """Aggregate that returns the lowest and the highest value so far, as NumPy values."""

    def initialize(self, value: float) -> tuple[object, ...]:
        self.values = [value]
        return self.answer()

    def iterate(self, value: float) -> tuple[object, ...]:
        self.values.append(value)
        return self.answer()

    def answer(self) -> tuple[object, ...]:
        return np.min(self.values), np.int64(len(self.values)), Decimal("0.125")


class Wrong:
    def initialize(self, value: object) -> object:
        return {"value": value}

    iterate = initialize


class Latest:
    """Window aggregate that reads its window."""

    inwindow: Inwindow

    def initialize(self, value: float) -> str:
        return " ".join(str(args[0]) for args in self.inwindow)

    iterate = initialize

    def expire(self, value: float) -> None:
        assert self.inwindow.oldest() == (value,)


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = {made.__name__: made for made in (Total, Echo, Range, Wrong, Latest)}
    monkeypatch.setitem(sys.modules, "my_aggregates", SimpleNamespace(**classes))


def python(name: str, arguments: str, returns: str, kind: str = "") -> str:
    return (
        f"CREATE {kind} AGGREGATE {name}({arguments}) : {returns} LANGUAGE PYTHON AS 'my_aggregates:{name}';"
    )


def test_a_python_class_is_an_aggregate() -> None:
    total = python("Total", "x Real", "Int")
    assert repr(over_table(total, "total", 1, 2.5)) == "[3]"
    assert over_table(total, "total") == []
    query = "SELECT Total(price) OVER (ROWS 1 PRECEDING) FROM Price"
    assert last_column(run(f"{PRICES} {total} {query}", stream(1.0, 2.0, 4.0))) == [1, 3, 6]


def test_a_method_can_return_none_a_value_or_a_list() -> None:
    text = f"{PRICES} {python('Echo', 'x Int', 'Int')} SELECT Echo(price) FROM Price"
    assert last_column(run(text, stream(2.0, 0.0, 1.0))) == [2, 2, 1]


def test_a_tuple_fills_several_columns_with_the_declared_types() -> None:
    range_ = python("Range", "x Real", "(low Real, n Int, d Decimal(4, 2))")
    out = [timed.row for timed in run(f"{PRICES} {range_} SELECT Range(price) FROM Price", stream(2.0, 1.0))]
    assert repr(out) == repr([(2.0, 1, Decimal("0.13")), (1.0, 2, Decimal("0.13"))])


def test_a_window_aggregate_reads_its_window() -> None:
    latest = python("Latest", "x Real", "Varchar", "WINDOW")
    query = "SELECT Latest(price) OVER (ROWS 1 PRECEDING) FROM Price"
    assert last_column(run(f"{PRICES} {latest} {query}", stream(1.0, 2.0, 3.0))) == [
        "1.0",
        "1.0 2.0",
        "2.0 3.0",
    ]


@pytest.mark.parametrize("returns", ["Real", "(a Real, b Real)"])
def test_a_result_of_a_wrong_type_is_reported_with_its_method_and_the_declared_columns(returns: str) -> None:
    with pytest.raises(SlicemillError, match=r"my_aggregates:Wrong\.initialize returned {'value': 1\.0}"):
        over_table(python("Wrong", "x Real", returns), "wrong", 1)
