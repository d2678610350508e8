"""How many nodes a ring of slices should have (S35, S36): more share the work, but make the way longer.

Symbols are those of the publication: L_C is the time to process one tuple on one node, T_s a node's time to
receive and send a tuple, T_n the latency of a hop, T_j the time to compare a pair, M streams, N nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, sqrt


@dataclass(frozen=True, slots=True)
class RingModel:
    """Equal streams of `rate` tuples per second with the same window on all, nested-loop joined."""

    streams: int
    rate: float
    window: float
    join_selectivity: float
    join_time: float
    send_time: float
    hop_time: float

    @property
    def central_time(self) -> float:
        """L_C: a step probes the whole state with every partial result of the steps before it."""
        state = self.rate * self.window
        grown = state * self.join_selectivity
        return self.join_time * state * sum(grown**step for step in range(self.streams - 1))

    @property
    def sending_time(self) -> float:
        """What passing a tuple and its partial results on adds to L_C, per node of the ring (13.2)."""
        return self.send_time * self.central_time / (self.rate * self.window * self.join_time)

    def speed_up(self, nodes: int) -> float:
        """The output rate over that of a single node (13.4)."""
        return 1 / (1 / nodes + self.send_time / (self.rate * self.window * self.join_time))

    def latency(self, nodes: float) -> float:
        """Mean time from arrival to result, tau (13.5)."""
        waiting = (nodes - 1) / 2 * self.hop_time
        working = self.central_time / nodes + self.sending_time
        travelling = self.streams * nodes * self.hop_time
        return waiting + max(working, travelling)

    @property
    def balance(self) -> float:
        """N1: work per node takes as long as the hops of a tuple round the ring."""
        c, hops = self.sending_time, self.streams * self.hop_time
        return (c + sqrt(c * c + 4 * hops * self.central_time)) / (2 * hops)

    @property
    def crossing(self) -> float:
        """N2: the mean way to a node takes as long as the work on it."""
        return 0.5 + sqrt(0.25 + 2 * self.central_time / self.hop_time)

    def best_length(self) -> int:
        """The number of nodes with the least latency (Theorem 9), rounded to the better neighbour."""
        exact = min(self.balance, self.crossing)
        return min((max(1, floor(exact)), max(1, ceil(exact))), key=self.latency)
