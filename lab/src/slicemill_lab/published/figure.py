"""Published figures, and the rule that compares ours with them.

    change(-74)      74 % below; ours is a relative change, too: (own - other) / other
    ratio(17)        17 times; ours is a ratio, too
    number(12)       a number without a direction, such as the best number of clusters
    between(50, 150) a published range; at_least(2) and up_to(-57) for published bounds

The rule uses the mean over the seeds. A published percentage is *reproduced* if ours is within 15 points, a
ratio or number if ours is within 15 %, and a range if ours is inside. A figure with a direction (below or
above, less or more than one) must also have the same direction. If only the direction agrees, the verdict is
*sign only*. The rule was fixed before any figure was compared, and experiments cannot change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isclose
from statistics import fmean

TOLERANCE = 0.15


class Verdict(StrEnum):
    """Outcome of the comparison with a published figure."""

    reproduced = "reproduced"
    sign_only = "sign only"
    not_reproduced = "not reproduced"


@dataclass(frozen=True, slots=True)
class PrintedChange:
    """Relative change: -0.74 is 74 % below."""

    value: float
    at_most: bool = False
    """Published as "up to". Our value is then the greatest over all loads."""

    def __str__(self) -> str:
        return f"{'up to ' if self.at_most else ''}{self.shown(self.value)}"

    def shown(self, value: float) -> str:
        return (
            "0 %" if abs(value) < 0.0005 else f"{value * 100:+.{_digits(value * 100)}f} %".replace("-", "−")
        )

    def near(self, value: float) -> bool:
        return abs(value - self.value) <= TOLERANCE

    def direction(self, value: float) -> int:
        return (value > 0) - (value < 0)


@dataclass(frozen=True, slots=True)
class PrintedRatio:
    """Ratio of two figures."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:g} ×"

    def shown(self, value: float) -> str:
        return f"{_plain(value)} ×"

    def near(self, value: float) -> bool:
        return abs(value / self.value - 1) <= TOLERANCE

    def direction(self, value: float) -> int:
        return (value > 1) - (value < 1)


@dataclass(frozen=True, slots=True)
class PrintedNumber:
    """Number without a direction."""

    value: float
    unit: str = ""

    def __str__(self) -> str:
        return f"{_plain(self.value, 6)}{self.unit}"

    def shown(self, value: float) -> str:
        return str(self) if isclose(value, self.value) else f"{_plain(value)}{self.unit}"

    def near(self, value: float) -> bool:
        return abs(value / self.value - 1) <= TOLERANCE

    def direction(self, value: float) -> int | None:  # noqa: ARG002
        return None


@dataclass(frozen=True, slots=True)
class PrintedRange:
    """Range, including both ends."""

    low: float
    high: float
    unit: str = ""

    def __str__(self) -> str:
        if self.high == inf:
            return f"at least {self.shown(self.low)}"
        return f"{_plain(self.low)} to {self.shown(self.high)}"

    def shown(self, value: float) -> str:
        return f"{_plain(value)}{self.unit}"

    def near(self, value: float) -> bool:
        return self.low <= value <= self.high

    def direction(self, value: float) -> int | None:  # noqa: ARG002
        return None

    @property
    def value(self) -> float:
        return self.low


Printed = PrintedChange | PrintedRatio | PrintedNumber | PrintedRange


def change(percent: float) -> PrintedChange:
    return PrintedChange(percent / 100)


def up_to(percent: float) -> PrintedChange:
    return PrintedChange(percent / 100, at_most=True)


def ratio(value: float) -> PrintedRatio:
    return PrintedRatio(value)


def number(value: float, unit: str = "") -> PrintedNumber:
    return PrintedNumber(value, unit)


def between(low: float, high: float, unit: str = "") -> PrintedRange:
    return PrintedRange(low, high, unit)


def at_least(low: float, unit: str = "") -> PrintedRange:
    return PrintedRange(low, inf, unit)


def verdict(printed: Printed, samples: Sequence[float]) -> Verdict:
    """Compare samples over several seeds with a published figure.

    >>> verdict(change(-74), [-0.6, -0.7]).value, verdict(change(-74), [-0.3]).value
    ('reproduced', 'sign only')
    >>> verdict(change(4), [-0.01]).value, verdict(ratio(17), [15.0]).value, verdict(ratio(17), [3.0]).value
    ('not reproduced', 'reproduced', 'sign only')
    """
    ours = fmean(samples)
    expected = printed.direction(printed.value)
    # A published "no difference" has no direction.
    directed = bool(expected)
    same = not directed or printed.direction(ours) == expected
    if same and printed.near(ours):
        return Verdict.reproduced
    return Verdict.sign_only if directed and same else Verdict.not_reproduced


def changes(own: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the relative changes from `other` to `own` per seed, negative if `own` is lower."""
    return [a / b - 1 for a, b in zip(own, other, strict=True)]


def ratios(own: Sequence[float], other: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(own, other, strict=True)]


def _digits(percent: float) -> int:
    return 1 if abs(percent) < 9.95 and abs(percent - round(percent)) > 0.049 else 0


def _plain(value: float, digits: int = 3) -> str:
    if abs(value) >= 1000:
        return (
            f"{value:,.0f}".replace(",", " ") if digits == 3 or value == int(value) else f"{value:.{digits}g}"
        )
    return f"{value:.{digits}g}"
