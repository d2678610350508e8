"""Points in time and durations as integers of microseconds, and every spelling of a unit of time.

A point in time counts from 1970, between a beginning and an end. Units are those of SQL, Spark and
the theses.
"""

from __future__ import annotations

import time

# No timestamp is later: an input whose watermark is here has ended.
END = 2**63 - 1
# No timestamp is earlier: an input whose watermark is here has said nothing so far.
BEGINNING = -END
# 1678-01-01 00:00 UTC: the time of what holds before the first tuple. It is the first whole year that a
# count of nanoseconds reaches (pandas, Spark's `toPandas`). `BEGINNING` itself cannot be shown as a date.
EARLIEST = -9_214_560_000_000_000

US = 1_000_000


class SteadyClock:
    """The wall clock in microseconds, except that it never goes back.

    If the machine's clock is set back, time goes on from where it was at the pace of the monotonic clock. If
    the machine's clock is set forward, this clock follows. Any thread may read it.
    """

    __slots__ = ("_ahead_ns",)

    def __init__(self) -> None:
        self._ahead_ns = -(2**63)  # of the monotonic clock

    def __call__(self) -> int:
        # The wall is read first: a thread that is interrupted in between must not bring the clock forward.
        wall_ns = time.time_ns()
        steady_ns = time.monotonic_ns()
        self._ahead_ns = max(self._ahead_ns, wall_ns - steady_ns)
        return (steady_ns + self._ahead_ns) // 1000

    def not_before(self, us: int) -> int:
        """Go on from a point in time if that is later than now; returns by how much it is."""
        behind_us = max(0, us - self())
        self._ahead_ns += behind_us * 1000
        return behind_us


# Of this process; a mill goes on from the last commit of its home, and its workers from the mill's time.
wall_clock_us = SteadyClock()


UNITS_US: dict[str, int] = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}

_SHORT = {
    "US": "MICROSECOND",
    "USEC": "MICROSECOND",
    "MICRO": "MICROSECOND",
    "MS": "MILLISECOND",
    "MSEC": "MILLISECOND",
    "MILLI": "MILLISECOND",
    "S": "SECOND",
    "SEC": "SECOND",
    "M": "MINUTE",
    "MIN": "MINUTE",
    "H": "HOUR",
    "HR": "HOUR",
    "D": "DAY",
    "W": "WEEK",
}

# Not of a fixed length: fine in date arithmetic, never in a window.
CALENDAR_UNITS_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def unit_name(word: str) -> str | None:
    """The singular upper-case name of a unit, or None if `word` is none.

    >>> unit_name("mins"), unit_name("Hours"), unit_name("months"), unit_name("rows")
    ('MINUTE', 'HOUR', 'MONTH', None)
    """
    upper = word.upper()
    for candidate in (upper, upper.removesuffix("S")):
        if candidate in UNITS_US or candidate in CALENDAR_UNITS_MONTHS:
            return candidate
        if candidate in _SHORT:
            return _SHORT[candidate]
    return None


def format_us(us: int) -> str:
    """A duration as people write it, in the largest unit that divides it.

    >>> format_us(90_000_000), format_us(3_600_000_000), format_us(0)
    ('90 SECONDS', '1 HOUR', '0 SECONDS')
    """
    if us == 0:
        return "0 SECONDS"
    for name, size in sorted(UNITS_US.items(), key=lambda item: -item[1]):
        if us % size == 0:
            count = us // size
            return f"{count} {name}{'' if count == 1 else 'S'}"
    raise AssertionError("every whole number of microseconds is divisible by one")
