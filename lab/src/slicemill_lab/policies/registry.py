"""Registry of policies for the simulator: the product's policies, and policies for simulators only.

The latter know the true cost and output of every tuple, follow the charts of another objective, or take turns
tuple by tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from slicemill.errors import did_you_mean
from slicemill.scheduling import policies as policy_registry
from slicemill.scheduling.policies import UnknownPolicyError, fas_with
from slicemill_lab.policies.asked import AskedPolicy
from slicemill_lab.policies.component import component
from slicemill_lab.policies.greedy import greedy
from slicemill_lab.policies.mss import mss
from slicemill_lab.policies.oracle import hnr_oracle, hr_oracle
from slicemill_lab.policies.policy import SimulatedTask, TupleChooser
from slicemill_lab.policies.round_robin import round_robin
from slicemill_lab.policies.time_slices import time_slices

SIMULATED: Mapping[str, Callable[..., TupleChooser]] = MappingProxyType(
    {
        "component": component,
        "greedy": greedy,
        "hnr-o": hnr_oracle,
        "hr-o": hr_oracle,
        "mss": mss,
        "rr-k": round_robin,
        "slices": time_slices,
    }
)
NAMES = (*policy_registry.POLICIES, *SIMULATED)

# Objective to minimise, and the best policy for it (P39).
OBJECTIVES: Mapping[str, str] = MappingProxyType(
    {
        "mean response": "hr",
        "mean slowdown": "hnr",
        "longest response": "fcfs",
        "greatest slowdown": "lsf",
        "l2 response": "brt",
        "l2 slowdown": "bsd",
        "staleness": "fas",
    }
)


def make(name: str, tasks: Sequence[SimulatedTask], **options: float) -> TupleChooser:
    """Return a new chooser for these tasks. Options depend on the policy, such as `quantum` of `rr-k`."""
    if name in SIMULATED:
        return SIMULATED[name](tasks, **options)
    return asked(name, tasks, **options)


def asked(name: str, tasks: Sequence[SimulatedTask], *, beta: float | None = None) -> AskedPolicy:
    """Return one of the product's policies for these tasks."""
    if name not in policy_registry.POLICIES:
        hint = did_you_mean(name, NAMES) or f"there are {', '.join(NAMES)}"
        raise UnknownPolicyError(f"there is no policy {name}; {hint}")
    return AskedPolicy(policy_registry.POLICIES[name] if beta is None else fas_with(beta), tasks)
