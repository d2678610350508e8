"""Optimal number of nodes in a ring of slices (S35, S36).

More nodes share the work, but make the ring longer. Symbols are those of the publication: L_C is the time
to process one row on one node, T_s the time of a node to receive and send a row, T_n the latency of a
hop, T_j the time to compare a pair, M the number of streams, N the number of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, sqrt


@dataclass(frozen=True, slots=True)
class RingModel:
    """Ring with equal streams of `rate` rows per second and equal windows.

    The join is a nested loop.
    """

    streams: int
    rate: float
    window: float
    join_selectivity: float
    join_time: float
    send_time: float
    hop_time: float

    @property
    def central_time(self) -> float:
        """L_C: each step probes its whole state with every partial result."""
        state = self.rate * self.window
        grown = state * self.join_selectivity
        return self.join_time * state * sum(grown**step for step in range(self.streams - 1))

    @property
    def sending_time(self) -> float:
        """Time per node to forward a row and its partial results (13.2).

        It adds to L_C.
        """
        return self.send_time * self.central_time / (self.rate * self.window * self.join_time)

    def speed_up(self, nodes: int) -> float:
        """Return the output rate relative to a single node (13.4)."""
        return 1 / (1 / nodes + self.send_time / (self.rate * self.window * self.join_time))

    def latency(self, nodes: float) -> float:
        """Return the mean time from arrival to result, tau (13.5)."""
        waiting = (nodes - 1) / 2 * self.hop_time
        working = self.central_time / nodes + self.sending_time
        travelling = self.streams * nodes * self.hop_time
        return waiting + max(working, travelling)

    @property
    def balance(self) -> float:
        """N1, where a node's work equals the travel time around the ring."""
        c, hops = self.sending_time, self.streams * self.hop_time
        return (c + sqrt(c * c + 4 * hops * self.central_time)) / (2 * hops)

    @property
    def crossing(self) -> float:
        """N2, where the mean travel time equals the work of a node."""
        return 0.5 + sqrt(0.25 + 2 * self.central_time / self.hop_time)

    def best_length(self) -> int:
        """Return the number of nodes with the least latency (Theorem 9).

        The exact value is rounded to the better neighbour.
        """
        exact = min(self.balance, self.crossing)
        return min((max(1, floor(exact)), max(1, ceil(exact))), key=self.latency)
