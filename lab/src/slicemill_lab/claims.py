"""What a publication says, next to what we measured, and whether it holds here.

A claim is a direction, an order, or a value that was published or that theory says; bounds of `at_most`,
`at_least` and `within` are published ones, or where a direction turns: 0, 1, half for "most". How large a
difference is here is no claim: it is measured, and held against the published one by one rule
(`published.figure`). A published claim that we know to be wrong is tested in its corrected form, and its note
says what was printed and what we found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from slicemill_lab.published.figure import TOLERANCE


@dataclass(frozen=True, slots=True)
class Claim:
    """One checked statement of an experiment."""

    what: str
    expected: str
    measured: float | str
    holds: bool
    note: str = ""
    timed: bool = False
    """Rests on measured time: it says something of this machine now, and another run may say otherwise."""


def timed(claim: Claim) -> Claim:
    """A claim about seconds, which no test relies on."""
    return replace(claim, timed=True)


def at_most(what: str, measured: float, bound: float, note: str = "") -> Claim:
    """The claim that a figure does not exceed `bound`."""
    return Claim(what, f"≤ {bound:g}", float(measured), bool(measured <= bound), note)


def at_least(what: str, measured: float, bound: float, note: str = "") -> Claim:
    """The claim that a figure reaches `bound`."""
    return Claim(what, f"≥ {bound:g}", float(measured), bool(measured >= bound), note)


def within(what: str, measured: float, low: float, high: float, note: str = "") -> Claim:
    """The claim that a figure lies in the closed interval from `low` to `high`."""
    return Claim(what, f"{low:g} to {high:g}", float(measured), bool(low <= measured <= high), note)


def equal(what: str, measured: float, value: float, note: str = "") -> Claim:
    """The claim that a figure is what theory says, but for the rounding of sums."""
    holds = abs(measured - value) <= 1e-9 * max(1.0, abs(value))
    return Claim(what, f"= {value:g}", float(measured), bool(holds), note)


def near(what: str, measured: float, value: float, note: str = "") -> Claim:
    """The claim that a figure is what was published, or what theory says, within 15 % of it.

    It is the rule for published figures (`published.figure`), so that no experiment has a bound of its own.
    """
    holds = abs(measured - value) <= TOLERANCE * abs(value)
    return Claim(what, f"{value:g} ± 15 %", float(measured), bool(holds), note)


def ascending(what: str, measured: Mapping[str, float], note: str = "") -> Claim:
    """The claim that the named figures are in strictly ascending order, as listed."""
    holds = all(a < b for a, b in pairwise(measured.values()))
    figures = ", ".join(f"{name} {value:.4g}" for name, value in measured.items())
    return Claim(what, " < ".join(measured), figures, holds, note)
