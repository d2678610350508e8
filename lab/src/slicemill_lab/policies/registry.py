"""The policies by name. A new policy is a module of its own and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType

from slicemill.scheduling.policy_names import UnknownPolicyError
from slicemill_lab.policies.brt import brt
from slicemill_lab.policies.bsd import bsd
from slicemill_lab.policies.component import component
from slicemill_lab.policies.fas import fas
from slicemill_lab.policies.fcfs import fcfs
from slicemill_lab.policies.greedy import greedy
from slicemill_lab.policies.hnr import hnr
from slicemill_lab.policies.hr import hr
from slicemill_lab.policies.lsf import lsf
from slicemill_lab.policies.mss import mss
from slicemill_lab.policies.oracle import hnr_oracle, hr_oracle
from slicemill_lab.policies.policy import Policy, Unit
from slicemill_lab.policies.round_robin import round_robin
from slicemill_lab.policies.srpt import srpt
from slicemill_lab.policies.time_slices import time_slices

POLICIES: Mapping[str, Callable[..., Policy]] = MappingProxyType(
    {
        "brt": brt,
        "bsd": bsd,
        "component": component,
        "fas": fas,
        "fcfs": fcfs,
        "greedy": greedy,
        "hnr": hnr,
        "hnr-o": hnr_oracle,
        "hr": hr,
        "hr-o": hr_oracle,
        "lsf": lsf,
        "mss": mss,
        "rr": round_robin,
        "slices": time_slices,
        "srpt": srpt,
    }
)

# What a user wants to be least, and the policy that is best at it (P39).
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


def make(name: str, units: Sequence[Unit], **options: float) -> Policy:
    """A fresh policy for these units; options are the policy's own, such as `quantum` of `rr`."""
    if name not in POLICIES:
        near = get_close_matches(name, POLICIES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(POLICIES)}"
        raise UnknownPolicyError(f"no scheduling policy {name!r}; {hint}")
    return POLICIES[name](units, **options)
