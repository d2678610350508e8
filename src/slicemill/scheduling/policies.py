"""Scheduling policies by name, with the metric that each policy minimises.

    policy_named("hnr").priority(batches)

The priority functions are in `scheduling.priorities`. This module needs NumPy and is imported at the first
call of `priority`, so that checking `SET policy = 'hnr'` in a script is fast.
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

_WITH_NUMBER = re.compile(r"\s*(\w+)\s*(?:\(\s*(\d+(?:\.\d*)?|\.\d+)\s*\))?\s*")


DEFAULT_POLICY = "default"
"""Policy name with which a component of the query graph gets the global policy again."""


class UnknownPolicyError(SlicemillError):
    """Error: the name of a scheduling policy is unknown."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Scheduling policy: computes a priority for each ready task."""

    name: str
    aim: str
    """Metric that the policy minimises."""
    formula: str
    """Name of the function in `scheduling.priorities` that computes the priorities of this policy."""
    linear: bool = True
    """True if the priority is c + g · wait, where c and g depend only on the task.

    This holds for runs without fixed cost.
    """
    beta: float | None = None
    """Parameter of `fas`, between 0 (response time) and 1 (freshness).

    The value is None for other policies.
    """

    def priority(self, batches: Batches) -> Floats:
        """Return the priority of each batch. The batch with the greatest priority runs first."""
        formula = getattr(import_module("slicemill.scheduling.priorities"), self.formula)
        priorities: Floats = formula(batches) if self.beta is None else formula(batches, self.beta)
        return priorities


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Policy("fcfs", "longest response time", "fcfs_priority"),
            Policy("rr", "no metric (runs each task in turn)", "round_robin_priority", linear=False),
            Policy("srpt", "time until the next task has no pending rows", "srpt_priority"),
            Policy("rb", "mean response time of one query", "rb_priority"),
            Policy("ml", "time until the next result of one query", "ml_priority"),
            Policy("hr", "mean response time", "hr_priority"),
            Policy("hnr", "mean slowdown", "hnr_priority"),
            Policy("lsf", "greatest slowdown", "lsf_priority"),
            Policy("brt", "l2 norm of response times", "brt_priority"),
            Policy("bsd", "l2 norm of slowdowns", "bsd_priority"),
            Policy("fas", "staleness", "fas_priority", linear=False),
            Policy("chain", "pending rows", "chain_priority"),
            Policy(
                "edf", "missed deadlines of service levels, if all can be met", "edf_priority", linear=False
            ),
            Policy("hybrid", "delay after the deadlines of service levels", "hybrid_priority", linear=False),
        )
    }
)


def policy_named(text: str) -> Policy:
    """Return the scheduling policy with a given name, for example `hnr` or `fas(0.5)`.

    >>> policy_named("FAS(0.250)").name, policy_named(" hnr ").name
    ('fas(0.25)', 'hnr')
    """
    match = _WITH_NUMBER.fullmatch(text)
    name = match[1].lower() if match else ""
    if match is None or name not in POLICIES:
        hint = did_you_mean(name or text, POLICIES) or f"use one of {', '.join(POLICIES)}"
        raise UnknownPolicyError(f"there is no policy {text.strip()}; {hint}")
    if match[2] is None:
        return POLICIES[name]
    if name != "fas":
        raise UnknownPolicyError(f"policy {name} has no parameter; only fas has one, as in fas(0.5)")
    return fas_with(float(match[2]))


def fas_with(beta: float) -> Policy:
    """Return the policy `fas` (freshness-aware scheduling) with the parameter β."""
    if not 0 <= beta <= 1:
        raise UnknownPolicyError(
            f"the parameter {beta:g} of fas is out of range; use 0 (response time) to 1 (freshness)"
        )
    return replace(POLICIES["fas"], name=f"fas({beta:g})", beta=beta)
