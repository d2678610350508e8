"""The dispatcher's policies by name, and the choice that it makes with one (§4.3, P39).

    chooser = Chooser(policy_named("hnr"))
    chooser.choose(batches, 2)      # positions of the two batches to run now, the first of them in front

The dispatcher on Spark and the simulator of batches make their choices here. Policies keep nothing between
two decisions, so one can be put in the place of another at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from slicemill.scheduling import batches as forms
from slicemill.scheduling.batches import Batches, Priority
from slicemill.scheduling.policy_names import AIMS, parse_policy

PATIENCE_S = 30.0
GUARDED_EVERY = 10


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """`aim` says what the policy makes least."""

    name: str
    priority: Priority
    aim: str


_PRIORITIES: Mapping[str, Priority] = {
    "fcfs": forms.fcfs,
    "rr": forms.round_robin,
    "srpt": forms.srpt,
    "hr": forms.hr,
    "hnr": forms.hnr,
    "lsf": forms.lsf,
    "brt": forms.brt,
    "bsd": forms.bsd,
    "fas": forms.fas,
    "chain": forms.chain,
    "edf": forms.edf,
    "hybrid": forms.hybrid,
}
POLICIES: Mapping[str, BatchPolicy] = MappingProxyType(
    {name: BatchPolicy(name, _PRIORITIES[name], aim) for name, aim in AIMS.items()}
)


def policy_named(text: str) -> BatchPolicy:
    """A policy by its name, `hnr`; for `fas` with its β between 0 (response time) and 1 (freshness).

    >>> policy_named("FAS(0.25)").name
    'fas(0.25)'
    """
    wanted = parse_policy(text)
    policy = POLICIES[wanted.name]
    if wanted.beta is None:
        return policy
    return BatchPolicy(str(wanted), partial(forms.fas, beta=wanted.beta), policy.aim)


@dataclass(slots=True)
class Chooser:
    """Chooses by priority, with a guard against starving.

    Where priorities are zero, or too low ever to be the greatest, one decision in `guarded_every` goes to the
    unit that has waited longest, if that is more than `patience` seconds. Its wait is so bounded, however
    overloaded the machine is, and the policy still decides nine times out of ten.
    """

    policy: BatchPolicy
    patience: float = PATIENCE_S
    guarded_every: int = GUARDED_EVERY
    _since_guarded: int = 0

    def choose(self, batches: Batches, count: int = 1) -> list[int]:
        """Positions of up to `count` batches, the greatest priority first; of equals, the longest wait."""
        ranked = np.lexsort((-batches.wait, -self.policy.priority(batches)))
        order = [int(position) for position in ranked[:count]]
        self._since_guarded += 1
        if order and self._since_guarded >= self.guarded_every:
            oldest = int(np.argmax(batches.wait))
            if batches.wait[oldest] > self.patience:
                self._since_guarded = 0
                order = [oldest, *(position for position in order if position != oldest)][:count]
        return order

    def choose_job(self, batches: Batches, tasks: Sequence[int], cores: int) -> list[int]:
        """Positions of the batches of one job: the first, and those behind it whose tasks find a core."""
        chosen: list[int] = []
        free = cores
        for position in self.choose(batches, cores):
            free -= tasks[position]
            if chosen and free < 0:
                break
            chosen.append(position)
        return chosen
