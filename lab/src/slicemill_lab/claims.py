"""What a publication says, next to what we measured, and whether it holds here.

`at_most`, `at_least`, `within` and `ascending` build the usual claims, so that the bound that is printed is
the bound that was checked. A published claim that we know to be wrong is tested in its corrected form, and
its note says what was printed and what we found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise


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


def ascending(what: str, measured: Mapping[str, float], note: str = "") -> Claim:
    """The claim that the named figures are in strictly ascending order, as listed."""
    holds = all(a < b for a, b in pairwise(measured.values()))
    figures = ", ".join(f"{name} {value:.4g}" for name, value in measured.items())
    return Claim(what, " < ".join(measured), figures, holds, note)
