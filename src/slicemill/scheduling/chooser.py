"""Choice of the units to run (§4.3).

The dispatcher and `slicemill simulate` use it:

    chooser = Chooser(policy_named("hnr"))
    chooser.choose(batches, 2)      # positions of the two batches to run now, in order
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from slicemill.scheduling.batches import Batches
from slicemill.scheduling.policies import DEFAULT_POLICY, Policy, policy_named
from slicemill.scheduling.portions import Positions

PATIENCE_S = 30.0
GUARDED_EVERY = 10


def rank_batches(policy: Policy, batches: Batches, count: int = 1) -> list[int]:
    """Return up to `count` positions by descending priority, then by wait."""
    priority = policy.priority(batches)
    if count < len(batches):
        # Sorting only the candidates is faster than sorting all.
        least = np.partition(priority, len(batches) - count)[len(batches) - count]
        best = np.flatnonzero(priority >= least)
        order = best[np.lexsort((-batches.wait[best], -priority[best]))][:count]
    else:
        order = np.lexsort((-batches.wait, -priority))
    positions: list[int] = order.tolist()
    return positions


@dataclass(slots=True)
class Chooser:
    """Choice of units by priority, with protection against starvation.

    One decision in `guarded_every` selects the unit with the longest wait, if that exceeds `patience`
    seconds. The guard bounds the wait of units with zero or low priority under any overload. The policy
    makes the other decisions.
    """

    policy: Policy
    patience: float = PATIENCE_S
    guarded_every: int = GUARDED_EVERY
    components: dict[str, Policy] = field(default_factory=dict)
    """Policies of parts of the graph, by the name of a stream or query in each part.

    The last one set applies.
    """
    _since_guarded: int = 0

    def set_policy(self, name: str, component: str | None = None) -> None:
        """Set the policy of all units, or of a part of the graph.

        `component` is the name of a stream or query in this part.
        """
        if component is None:
            self.policy = policy_named(name)
            return
        self.components.pop(component, None)
        if name != DEFAULT_POLICY:
            self.components[component] = policy_named(name)

    def choose(
        self, batches: Batches, count: int = 1, within: Iterable[tuple[Policy, Positions]] = ()
    ) -> list[int]:
        """Return up to `count` positions in the order of the policy.

        `within` are parts of the graph with their own policy, given by the entries of their batches. The
        global policy determines when a part has its turn, and the part's policy which of its units runs
        then (M4). The priorities of two policies cannot be compared. The starvation guard may put another
        unit first.
        """
        order = rank_batches(self.policy, batches, count)
        for policy, entries in within:
            mine = frozenset(entries.tolist())
            turns = [turn for turn, position in enumerate(order) if position in mine]
            own = entries[rank_batches(policy, batches.only(entries), len(turns))].tolist() if turns else []
            for turn, position in zip(turns, own, strict=True):
                order[turn] = position
        self._since_guarded += 1
        if order and self._since_guarded >= self.guarded_every:
            oldest = int(np.argmax(batches.wait))
            if batches.wait[oldest] > self.patience:
                self._since_guarded = 0
                order = [oldest, *(position for position in order if position != oldest)][:count]
        return order
