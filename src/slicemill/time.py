"""Points in time and durations in microseconds, and units of time.

A point in time is counted from 1970, and is between BEGINNING and END. Unit names are those of SQL and Spark,
and those of published ESL queries.
"""

from __future__ import annotations

import time

# Greatest timestamp: the watermark of an input that has ended.
END = 2**63 - 1
# Least timestamp: the watermark of an input that has no watermark yet.
BEGINNING = -END
# Time before the first row, less than BEGINNING and all timestamps.
BEFORE_ALL = -(2**63)
# Timestamp of results that precede the first row: 1678-01-01 00:00 UTC. 1678 is the first whole year in the
# range of nanosecond timestamps (pandas, Spark's `toPandas`).
# `BEGINNING` is not a valid date.
EARLIEST = -9_214_560_000_000_000

SECOND_US = 1_000_000


class SteadyClock:
    """Wall clock in microseconds that never decreases; thread-safe.

    If the machine's clock is set back, this clock continues from its last value at the pace of the monotonic
    clock. If the machine's clock is set forward, this clock follows.
    """

    __slots__ = ("_ahead_ns",)

    def __init__(self) -> None:
        self._ahead_ns = -(2**63)  # wall clock minus monotonic clock, which never decreases

    def __call__(self) -> int:
        # The wall clock is read first, so that an interruption before the second read cannot advance
        # this clock.
        wall_ns = time.time_ns()
        steady_ns = time.monotonic_ns()
        self._ahead_ns = max(self._ahead_ns, wall_ns - steady_ns)
        return (steady_ns + self._ahead_ns) // 1000

    def not_before(self, us: int) -> int:
        """Advance the clock to a later time; return the size of the step."""
        behind_us = max(0, us - self())
        self._ahead_ns += behind_us * 1000
        return behind_us


# Clock of this process.
# The engine advances it to the last commit of the home directory, and its workers advance their clocks to the
# time of the engine.
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

# Units of time without a fixed length, in months. They are allowed in date arithmetic, but not in windows.
CALENDAR_UNITS_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def unit_name(word: str) -> str | None:
    """Return the singular upper-case name of a unit of time, or None.

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
    """Format a duration in the largest unit that divides it.

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
