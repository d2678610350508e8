"""The choice that is made with a policy, by the dispatcher and by `slicemill simulate` (§4.3).

chooser = Chooser(policy_named("hnr"))
chooser.choose(batches, 2)      # positions of the two batches to run now, the first of them in front
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from slicemill.scheduling.arrays import Positions
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.policies.policy_registry import DEFAULT_POLICY, Policy, policy_named

PATIENCE_S = 30.0
GUARDED_EVERY = 10


def ranked(policy: Policy, batches: Batches, count: int = 1) -> list[int]:
    """Positions of up to `count` batches, the greatest priority first; of equals, the longest wait."""
    priority = policy.priority(batches)
    if count < len(batches):
        # Sorting only those that can be among the first is quicker than sorting all.
        least = np.partition(priority, len(batches) - count)[len(batches) - count]
        best = np.flatnonzero(priority >= least)
        order = best[np.lexsort((-batches.wait[best], -priority[best]))][:count]
    else:
        order = np.lexsort((-batches.wait, -priority))
    positions: list[int] = order.tolist()
    return positions


@dataclass(slots=True)
class Chooser:
    """Chooses by priority, with a guard against starving.

    Where priorities are zero, or too low ever to be the greatest, one decision in `guarded_every` goes to the
    unit that has waited longest, if that is more than `patience` seconds. Its wait is so bounded, however
    overloaded the machine is, and the policy still decides nine times out of ten.
    """

    policy: Policy
    patience: float = PATIENCE_S
    guarded_every: int = GUARDED_EVERY
    components: dict[str, Policy] = field(default_factory=dict)
    """Policies of parts of the graph, by the name of a stream or query in each; the last one set counts."""
    _since_guarded: int = 0

    def set_policy(self, name: str, component: str | None = None) -> None:
        """Decide by another policy from now on: all, or what is connected with a stream or query."""
        if component is None:
            self.policy = policy_named(name)
            return
        self.components.pop(component, None)
        if name != DEFAULT_POLICY:
            self.components[component] = policy_named(name)

    def choose(
        self, batches: Batches, count: int = 1, within: Iterable[tuple[Policy, Positions]] = ()
    ) -> list[int]:
        """Positions of up to `count` batches, in the order of the policy but for the guard.

        `within` are components, by the entries of their batches, that have a policy of their own. When it is
        the turn of a component is decided by the policy of all; which of its units is then run, by its own
        (M4): priorities of two policies cannot be compared.
        """
        order = ranked(self.policy, batches, count)
        for policy, entries in within:
            mine = frozenset(entries.tolist())
            turns = [turn for turn, position in enumerate(order) if position in mine]
            own = entries[ranked(policy, batches.only(entries), len(turns))].tolist() if turns else []
            for turn, position in zip(turns, own, strict=True):
                order[turn] = position
        self._since_guarded += 1
        if order and self._since_guarded >= self.guarded_every:
            oldest = int(np.argmax(batches.wait))
            if batches.wait[oldest] > self.patience:
                self._since_guarded = 0
                order = [oldest, *(position for position in order if position != oldest)][:count]
        return order
