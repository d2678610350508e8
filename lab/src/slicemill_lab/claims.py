"""Claims: published statements with our measurement, and whether they hold here.

A claim is a direction, an order, or a value that was published or follows from theory. The bounds of
`at_most`, `at_least` and `within` are published values, or the points where a direction changes: 0, 1, or
half for "most". The size of a difference is not a claim. It is measured and compared with the published size
by one rule (`published.figure`). A published claim that is known to be wrong is tested in its corrected form;
its note has the printed version and our finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from slicemill_lab.published.figure import TOLERANCE


@dataclass(frozen=True, slots=True)
class Claim:
    """Checked statement of an experiment."""

    what: str
    expected: str
    measured: float | str
    holds: bool
    note: str = ""
    timed: bool = False
    """True if the claim is about measured time, so that another run may give another result."""


def timed(claim: Claim) -> Claim:
    """Mark a claim as one about measured time, on which no test may rely."""
    return replace(claim, timed=True)


def at_most(what: str, measured: float, bound: float, note: str = "") -> Claim:
    """Claim that a figure does not exceed `bound`."""
    return Claim(what, f"≤ {bound:g}", float(measured), bool(measured <= bound), note)


def at_least(what: str, measured: float, bound: float, note: str = "") -> Claim:
    """Claim that a figure reaches `bound`."""
    return Claim(what, f"≥ {bound:g}", float(measured), bool(measured >= bound), note)


def within(what: str, measured: float, low: float, high: float, note: str = "") -> Claim:
    """Claim that a figure is in the closed interval from `low` to `high`."""
    return Claim(what, f"{low:g} to {high:g}", float(measured), bool(low <= measured <= high), note)


def equal(what: str, measured: float, value: float, note: str = "") -> Claim:
    """Claim that a figure equals the theoretical value, up to rounding of sums."""
    holds = abs(measured - value) <= 1e-9 * max(1.0, abs(value))
    return Claim(what, f"= {value:g}", float(measured), bool(holds), note)


def near(what: str, measured: float, value: float, note: str = "") -> Claim:
    """Claim that a figure is within 15 % of the published or theoretical value.

    The tolerance is the one for published figures (`published.figure`), so no experiment chooses its own
    bound.
    """
    holds = abs(measured - value) <= TOLERANCE * abs(value)
    return Claim(what, f"{value:g} ± 15 %", float(measured), bool(holds), note)


def ascending(what: str, measured: Mapping[str, float], note: str = "") -> Claim:
    """Claim that the named figures are in strictly ascending order, as listed."""
    holds = all(a < b for a, b in pairwise(measured.values()))
    figures = ", ".join(f"{name} {value:.4g}" for name, value in measured.items())
    return Claim(what, " < ".join(measured), figures, holds, note)
