"""The names of the dispatcher's policies, what each of them makes least, and reading one as it is written.

Without NumPy: `SET policy = 'hnr'` is checked with the script, and checking should not wait for arrays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from slicemill.errors import SlicemillError, did_you_mean

AIMS: Mapping[str, str] = MappingProxyType(
    {
        "fcfs": "longest response time",
        "rr": "nothing: each unit in turn",
        "srpt": "time until the next unit is done",
        "hr": "mean response time",
        "hnr": "mean slowdown",
        "lsf": "greatest slowdown",
        "brt": "l2 norm of response times",
        "bsd": "l2 norm of slowdowns",
        "fas": "staleness",
        "chain": "rows that wait",
        "edf": "missed service levels, while all can be met",
        "hybrid": "tardiness against service levels",
    }
)
_WITH_NUMBER = re.compile(r"\s*(\w+)\s*(?:\(\s*(\d+(?:\.\d*)?|\.\d+)\s*\))?\s*")


class UnknownPolicyError(SlicemillError):
    """A policy name that nobody knows."""


class PolicyName(NamedTuple):
    """`beta` is only fas's: between 0 (response time) and 1 (freshness)."""

    name: str
    beta: float | None = None

    def __str__(self) -> str:
        return self.name if self.beta is None else f"{self.name}({self.beta:g})"


def parse_policy(text: str) -> PolicyName:
    """A policy as people write it.

    >>> str(parse_policy("FAS(0.250)")), str(parse_policy(" hnr "))
    ('fas(0.25)', 'hnr')
    """
    match = _WITH_NUMBER.fullmatch(text)
    name = match[1].lower() if match else ""
    if match is None or name not in AIMS:
        hint = did_you_mean(name or text, AIMS) or f"there are {', '.join(AIMS)}"
        raise UnknownPolicyError(f"there is no policy {text.strip()}; {hint}")
    if match[2] is None:
        return PolicyName(name)
    beta = float(match[2])
    if name != "fas":
        raise UnknownPolicyError(f"{name} takes no number; only fas does, as in fas(0.5)")
    if beta > 1:
        raise UnknownPolicyError(f"the number of fas lies between 0 and 1, not at {beta:g}")
    return PolicyName(name, beta)
