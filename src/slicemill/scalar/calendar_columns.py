"""The proleptic Gregorian calendar over whole columns of days, for all days that 32 bits hold.

The algorithms are those of the reference (Howard Hinnant's), with NumPy's floor division.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slicemill.scalar.kernel import Out
from slicemill.scalar.vectors import Mask, Numbers

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

# Timestamps this far from the ends of 64 bits can be moved to the start of any unit.
_LEAST_US, _LARGEST_US = -(2**63) + 1000 * DAY_US, 2**63 - 1 - 1000 * DAY_US
_DAYS_BEFORE_1970 = 719_468  # counted from 0000-03-01
_DAYS_IN_400_YEARS = 146_097
_MANY = 2**40
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_MONTH_LENGTHS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


class Civil(NamedTuple):
    year: Numbers
    month: Numbers
    day: Numbers


def days_of(year: Numbers, month: Numbers, day: Numbers) -> Numbers:
    """Days since 1970-01-01."""
    year = year - (month <= 2)
    era, year_of_era = np.divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * _DAYS_IN_400_YEARS + day_of_era - _DAYS_BEFORE_1970


def civil_of(days: Numbers) -> Civil:
    """Year, month and day: the inverse of `days_of`."""
    era, day_of_era = np.divmod(days.astype(np.int64) + _DAYS_BEFORE_1970, _DAYS_IN_400_YEARS)
    leaps = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leaps) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = np.where(shifted < 10, shifted + 3, shifted - 9)
    year = year_of_era + era * 400 + (month <= 2)
    return Civil(year, month, day_of_year - (153 * shifted + 2) // 5 + 1)


def days_in_month(year: Numbers, month: Numbers) -> Numbers:
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return _MONTH_LENGTHS[month] + (leap & (month == 2))


def is_date(year: Numbers, month: Numbers, day: Numbers) -> Mask:
    known = (month >= 1) & (month <= 12)
    valid: Mask = known & (day >= 1) & (day <= days_in_month(year, np.where(known, month, 1)))
    return valid


def day_count(days: Numbers) -> Out:
    """Days as a DATE; those beyond 32 bits are left to the reference."""
    return Out(days.astype(np.int32), unsure=(days < _INT_MIN) | (days > _INT_MAX))


def moved_by_months(days: Numbers, months: Numbers) -> Numbers:
    """The same day so many months later, or the last one of a shorter month."""
    year, month, day = civil_of(days)
    years, index = np.divmod(month - 1 + months, 12)
    year, month = year + years, index + 1
    return days_of(year, month, np.minimum(day, days_in_month(year, month)))


def plus_months(days: Numbers, months: Numbers) -> Out:
    return day_count(moved_by_months(days, months)).doubting(beyond(months))


def timestamp_plus_months(us: Numbers, months: Numbers) -> Out:
    days, rest = np.divmod(us, DAY_US)
    moved = moved_by_months(days, months)
    in_range = np.abs(moved) < _LARGEST_US // DAY_US
    return Out(moved * DAY_US + rest, unsure=~in_range | beyond(months))


def beyond(count: Numbers) -> Mask:
    """Counts of days or months that a BIGINT holds and the calendar's arithmetic might not."""
    return np.asarray((count > _MANY) | (count < -_MANY))


def near_the_ends(us: Numbers) -> Mask:
    """Timestamps whose unit may begin before 64 bits do."""
    return np.asarray((us < _LEAST_US) | (us > _LARGEST_US))
