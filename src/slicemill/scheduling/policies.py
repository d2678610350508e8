"""The policies by name, what each of them makes least, and reading one as it is written (P39).

    policy_named("hnr").priority(batches)

Without NumPy until a priority is asked for: `SET policy = 'hnr'` is checked with the script, and checking
should not wait for arrays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from slicemill.errors import SlicemillError, did_you_mean

if TYPE_CHECKING:
    from slicemill.kernels.arrays import Floats
    from slicemill.scheduling.batches import Batches

if TYPE_CHECKING:
    pass

_WITH_NUMBER = re.compile(r"\s*(\w+)\s*(?:\(\s*(\d+(?:\.\d*)?|\.\d+)\s*\))?\s*")


DEFAULT_POLICY = "default"
"""What a component is set to that has no policy of its own any more."""


class UnknownPolicyError(SlicemillError):
    """A policy name that nobody knows."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A rule by which units go first."""

    name: str
    aim: str
    """What the policy makes least."""
    formula: str
    """Function of `scheduling.priorities` that computes its priorities."""
    linear: bool = True
    """Whether a priority is c + g · wait with figures c and g of the unit alone, if runs have no overhead."""
    beta: float | None = None
    """Only fas's: between 0 (response time) and 1 (freshness)."""

    def priority(self, batches: Batches) -> Floats:
        """A number for each batch; the greatest goes first."""
        formula = getattr(import_module("slicemill.scheduling.priorities"), self.formula)
        priorities: Floats = formula(batches) if self.beta is None else formula(batches, self.beta)
        return priorities


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Policy("fcfs", "longest response time", "fcfs_priority"),
            Policy("rr", "nothing: each unit in turn", "round_robin_priority", linear=False),
            Policy("srpt", "time until the next unit is done", "srpt_priority"),
            Policy("rb", "mean response time of one query", "rb_priority"),
            Policy("ml", "time until the next result of one query", "ml_priority"),
            Policy("hr", "mean response time", "hr_priority"),
            Policy("hnr", "mean slowdown", "hnr_priority"),
            Policy("lsf", "greatest slowdown", "lsf_priority"),
            Policy("brt", "l2 norm of response times", "brt_priority"),
            Policy("bsd", "l2 norm of slowdowns", "bsd_priority"),
            Policy("fas", "staleness", "fas_priority", linear=False),
            Policy("chain", "rows that wait", "chain_priority"),
            Policy("edf", "missed service levels, while all can be met", "edf_priority", linear=False),
            Policy("hybrid", "tardiness against service levels", "hybrid_priority", linear=False),
        )
    }
)


def policy_named(text: str) -> Policy:
    """A policy as people write it: by its name, for fas with its β.

    >>> policy_named("FAS(0.250)").name, policy_named(" hnr ").name
    ('fas(0.25)', 'hnr')
    """
    match = _WITH_NUMBER.fullmatch(text)
    name = match[1].lower() if match else ""
    if match is None or name not in POLICIES:
        hint = did_you_mean(name or text, POLICIES) or f"there are {', '.join(POLICIES)}"
        raise UnknownPolicyError(f"there is no policy {text.strip()}; {hint}")
    if match[2] is None:
        return POLICIES[name]
    if name != "fas":
        raise UnknownPolicyError(f"{name} takes no number; only fas does, as in fas(0.5)")
    return fas_with(float(match[2]))


def fas_with(beta: float) -> Policy:
    """Freshness-aware scheduling with this β, between 0 (response time) and 1 (freshness)."""
    if not 0 <= beta <= 1:
        raise UnknownPolicyError(f"the number of fas lies between 0 and 1, not at {beta:g}")
    return replace(POLICIES["fas"], name=f"fas({beta:g})", beta=beta)
