"""The dispatcher's policies by name, and the choice that it makes with one (§4.3, P39).

    chooser = Chooser(policy_named("hnr"))
    chooser.choose(batches, 2)      # positions of the two batches to run now, the first of them in front

The dispatcher on Spark and the simulator of batches make their choices here. Policies keep nothing between
two decisions, so one can be put in the place of another at any time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from slicemill.esl.errors import did_you_mean
from slicemill.scheduling import batches as forms
from slicemill.scheduling.batches import Batches, Priority
from slicemill.scheduling.registry import UnknownPolicyError

PATIENCE_S = 30.0
GUARDED_EVERY = 10


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """`aim` says what the policy makes least."""

    name: str
    priority: Priority
    aim: str


POLICIES: Mapping[str, BatchPolicy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            BatchPolicy("fcfs", forms.fcfs, "longest response time"),
            BatchPolicy("rr", forms.round_robin, "nothing: each unit in turn"),
            BatchPolicy("srpt", forms.srpt, "time until the next unit is done"),
            BatchPolicy("hr", forms.hr, "mean response time"),
            BatchPolicy("hnr", forms.hnr, "mean slowdown"),
            BatchPolicy("lsf", forms.lsf, "greatest slowdown"),
            BatchPolicy("brt", forms.brt, "l2 norm of response times"),
            BatchPolicy("bsd", forms.bsd, "l2 norm of slowdowns"),
            BatchPolicy("fas", forms.fas, "staleness"),
            BatchPolicy("chain", forms.chain, "rows that wait"),
            BatchPolicy("edf", forms.edf, "missed service levels, while all can be met"),
            BatchPolicy("hybrid", forms.hybrid, "tardiness against service levels"),
        )
    }
)
_WITH_NUMBER = re.compile(r"\s*(\w+)\s*(?:\(\s*(\d+(?:\.\d*)?|\.\d+)\s*\))?\s*")


def policy_named(text: str) -> BatchPolicy:
    """A policy by its name, `hnr`; for `fas` with its β between 0 (response time) and 1 (freshness).

    >>> policy_named("FAS(0.25)").name
    'fas(0.25)'
    """
    match = _WITH_NUMBER.fullmatch(text)
    name = match[1].lower() if match else ""
    if match is None or name not in POLICIES:
        hint = did_you_mean(name or text, POLICIES) or f"there are {', '.join(POLICIES)}"
        raise UnknownPolicyError(f"there is no policy {text.strip()}; {hint}")
    if match[2] is None:
        return POLICIES[name]
    beta = float(match[2])
    if name != "fas":
        raise UnknownPolicyError(f"{name} takes no number; only fas does, as in fas(0.5)")
    if beta > 1:
        raise UnknownPolicyError(f"the number of fas lies between 0 and 1, not at {beta:g}")
    return BatchPolicy(f"fas({beta:g})", partial(forms.fas, beta=beta), POLICIES["fas"].aim)


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
