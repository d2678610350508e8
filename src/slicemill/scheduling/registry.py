"""The policies by name. A new policy is a module of its own and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType

from slicemill.errors import SlicemillError
from slicemill.scheduling.component import component
from slicemill.scheduling.greedy import greedy
from slicemill.scheduling.mss import mss
from slicemill.scheduling.policy import Policy, Unit
from slicemill.scheduling.round_robin import round_robin

POLICIES: Mapping[str, Callable[..., Policy]] = MappingProxyType(
    {
        "component": component,
        "greedy": greedy,
        "mss": mss,
        "rr": round_robin,
    }
)


class UnknownPolicyError(SlicemillError):
    """A policy name that is not in the registry."""


def make(name: str, units: Sequence[Unit], **options: float) -> Policy:
    """A fresh policy for these units; options are the policy's own, such as `quantum` of `rr`."""
    if name not in POLICIES:
        near = get_close_matches(name, POLICIES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(POLICIES)}"
        raise UnknownPolicyError(f"no scheduling policy {name!r}; {hint}")
    return POLICIES[name](units, **options)
