"""Chooser: select the tasks to run next by a scheduling policy, but let no task starve.

The driver and `slicemill simulate` use it:

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
    """Return the indexes of the `count` batches with the highest priority, ordered by priority.

    Among equal priorities the batch with the longest wait precedes.
    """
    priority = policy.priority(batches)
    if count < len(batches):
        # Only the best batches are sorted, because sorting all batches takes longer.
        least = np.partition(priority, len(batches) - count)[len(batches) - count]
        best = np.flatnonzero(priority >= least)
        order = best[np.lexsort((-batches.wait[best], -priority[best]))][:count]
    else:
        order = np.lexsort((-batches.wait, -priority))
    positions: list[int] = order.tolist()
    return positions


@dataclass(slots=True)
class Chooser:
    """Selects the tasks to run next by a scheduling policy, but lets no task starve.

    Usually the policy decides. Once per `guarded_every` decisions, the task with the longest wait runs first
    instead, if it has waited for more than `patience` seconds. So tasks with low priority also run under
    permanent overload.
    """

    policy: Policy
    patience: float = PATIENCE_S
    guarded_every: int = GUARDED_EVERY
    components: dict[str, Policy] = field(default_factory=dict)
    """Scheduling policies of single components (connected parts) of the query graph.

    The key is the name of any stream or query in the component. If a component has several entries, the last
    one applies.
    """
    _since_guarded: int = 0

    def set_policy(self, name: str, component: str | None = None) -> None:
        """Set the scheduling policy of all tasks, or of one component of the query graph.

        `component` is the name of any stream or query in the component.
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
        """Return the indexes of up to `count` batches to run, in the order of the scheduling policy.

        `within` has the policy of each component (connected part of the query graph) that has its own policy,
        and the positions of the component's batches. Priorities of
        two policies cannot be compared. So the global policy determines the turns of a component, and the
        component's policy determines which of its tasks runs in each turn (M4). The starvation guard may put
        another task first.
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
