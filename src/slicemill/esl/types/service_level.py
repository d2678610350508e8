"""Service levels: bounds on a query's response times, as in `p99 < 2 s`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slicemill.time import UNITS_US, format_us, unit_name

MEASURES = ("p50", "p95", "p99", "max", "mean")
_FORM = re.compile(r"\s*(\w+)\s*<\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """Upper bound of a response-time measure."""

    measure: str
    bound_us: int

    @property
    def bound_s(self) -> float:
        return self.bound_us / 1_000_000

    def __str__(self) -> str:
        return f"{self.measure} < {format_us(self.bound_us).lower()}"


def service_level(text: str) -> ServiceLevel | None:
    """Parse a service level; return None if the text is invalid.

    >>> str(service_level("P99<2 s")), str(service_level("mean < 1.5 ms")), service_level("p98 < 2 s")
    ('p99 < 2 seconds', 'mean < 1500 microseconds', None)
    """
    match = _FORM.fullmatch(text)
    unit = unit_name(match[3]) if match else None
    if match is None or match[1].lower() not in MEASURES or unit not in UNITS_US:
        return None
    bound_us = round(float(match[2]) * UNITS_US[unit])
    return ServiceLevel(match[1].lower(), bound_us) if bound_us > 0 else None
