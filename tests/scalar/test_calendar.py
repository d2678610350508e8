"""Calendar functions of numbers and arrays against Python's dates, and outside Python's range."""

from __future__ import annotations

import calendar as python_calendar
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.functions.calendar import (
    civil_of,
    day_of_year,
    days_in_month,
    days_of,
    is_date,
    last_day,
    plus_months,
    week_of_year,
    weekday,
)

EPOCH = date(1970, 1, 1)
DAYS_IN_400_YEARS = 146_097
dates = st.dates(date(1, 1, 1), date(9999, 12, 31))
ends_of_months = st.builds(
    lambda year, month: date(year, month, python_calendar.monthrange(year, month)[1]),
    st.integers(1, 9999),
    st.integers(1, 12),
)


def days(day: date) -> int:
    return (day - EPOCH).days


@given(st.one_of(dates, ends_of_months))
def test_date_fields_equal_those_of_python_dates(day: date) -> None:
    number = days(day)
    assert days_of(day.year, day.month, day.day) == number
    assert civil_of(number) == (day.year, day.month, day.day)
    assert weekday(number) == day.weekday()
    assert day_of_year(number) == day.timetuple().tm_yday
    assert week_of_year(number) == day.isocalendar().week
    assert last_day(number) == days(day.replace(day=python_calendar.monthrange(day.year, day.month)[1]))


@given(st.integers(1, 9999), st.integers(-2, 15), st.integers(-1, 33))
def test_valid_dates_are_those_that_python_accepts(year: int, month: int, day: int) -> None:
    try:
        date(year, month, day)
    except ValueError:
        assert not is_date(year, month, day)
    else:
        assert is_date(year, month, day) and day <= days_in_month(year, month)


@given(st.one_of(dates, ends_of_months), st.integers(-500, 500))
def test_adding_months_keeps_the_day_or_takes_the_last_day_of_a_shorter_month(day: date, months: int) -> None:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if 1 <= year <= 9999:
        length = python_calendar.monthrange(year, month + 1)[1]
        assert plus_months(days(day), months) == days(date(year, month + 1, min(day.day, length)))


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(10**6), 10**6))
def test_the_calendar_repeats_every_400_years(number: int, months: int) -> None:
    year, month, day = civil_of(number)
    assert civil_of(number + DAYS_IN_400_YEARS) == (year + 400, month, day)
    assert plus_months(number + DAYS_IN_400_YEARS, months) == plus_months(number, months) + DAYS_IN_400_YEARS


@pytest.mark.parametrize(
    "function", [civil_of, weekday, day_of_year, week_of_year, last_day, lambda d: plus_months(d, d % 50)]
)
def test_array_results_equal_the_results_for_single_numbers(function: object) -> None:
    numbers = [days(EPOCH + timedelta(days=n)) for n in range(-900, 900, 7)] + [-(2**31), 2**31 - 1, -719_528]
    found = np.stack(np.atleast_2d(function(np.array(numbers))), axis=-1)  # type: ignore[operator]
    assert found.tolist() == [list(np.atleast_1d(function(n))) for n in numbers]  # type: ignore[operator]
