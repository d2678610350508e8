"""Published case study of a shared join tree, closed form (S16).

The tree is ((A, B), C) for queries Q1 and Q2, with selections on all three streams. Q1 has the shorter
window between A and B, Q2 the shorter one between B and C, so that neither query contains the other. The
sliced plan has five joins:

```
 A |x| B   [0, W1_AB)      ── AB ──► |x| C  [0, W2_BC) for both, then [W2_BC, W1_BC) for Q1
           [W1_AB, W2_AB)  ── AB ──► |x| C  [0, W2_BC) for Q2
```
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.operators.join.slices.workload import ChainCost


@dataclass(frozen=True, slots=True)
class JoinTree:
    """Rates, windows and selectivities; defaults from Table 6.2, in minutes and KB.

    `either` is the share of a stream that Q1 or Q2 selects; `each` is the share that each query selects. A
    row of AB is twice as big as a row of A.
    """

    short_ab: float = 1
    long_ab: float = 60
    short_bc: float = 15
    long_bc: float = 30
    rate: float = 1000
    size: float = 0.1
    each: float = 0.25
    either: float = 0.3
    join_ab: float = 0.1
    join_bc: float = 0.1

    def isolated(self) -> ChainCost:
        """Return the cost of a tree per query."""
        return self.query_1() + self.query_2()

    def query_1(self) -> ChainCost:
        return self._tree(self.each, self.short_ab, self.long_bc)

    def query_2(self) -> ChainCost:
        return self._tree(self.each, self.long_ab, self.short_bc)

    def pull_up(self) -> ChainCost:
        """Return the cost of one tree with the longest windows.

        Results are routed and selected again.
        """
        ab = self._rate_ab(self.either, self.long_ab)
        abc = 2 * ab * self.rate * self.either * self.long_bc * self.join_bc
        return self._tree(self.either, self.long_ab, self.long_bc) + ChainCost(select=2 * abc, route=2 * abc)

    def sliced(self) -> ChainCost:
        """Return the cost of five sliced joins in three chains (Eq 6.3, 6.7)."""
        rate, a, s = self.rate, self.either, self.each
        more_ab, more_bc = self.long_ab - self.short_ab, self.long_bc - self.short_bc
        ab_1 = self._rate_ab(a, self.short_ab)
        ab_2 = self._rate_ab(s, more_ab)
        ab_1_for_q1 = ab_1 * s**2 / a**2
        abc_1 = 2 * ab_1 * rate * a * self.short_bc * self.join_bc
        abc_2 = 2 * ab_1_for_q1 * rate * s * more_bc * self.join_bc
        abc_3 = 2 * ab_2 * rate * s * self.short_bc * self.join_bc
        of_a_and_b = 2 * rate * (a * self.short_ab + s * more_ab)
        of_c = rate * (a * self.short_bc + s * more_bc + s * self.short_bc)
        of_ab = 2 * (ab_1 * self.short_bc + ab_1_for_q1 * more_bc + ab_2 * self.short_bc)
        return ChainCost(
            memory=self.size * (of_a_and_b + of_c + of_ab),
            probe=(ab_1 + ab_2) / self.join_ab + (abc_1 + abc_2 + abc_3) / self.join_bc,
            purge=7 * rate * a + 2 * ab_1 + ab_2,
            select=7 * rate + 2 * abc_1 + ab_1,
            union=2 * abc_1 + abc_2 + abc_3,
        )

    def _rate_ab(self, passing: float, window: float) -> float:
        return 2 * self.rate**2 * passing**2 * window * self.join_ab

    def _tree(self, passing: float, window_ab: float, window_bc: float) -> ChainCost:
        """Return the cost of one unshared tree (Eq 6.1, 6.5)."""
        ab = self._rate_ab(passing, window_ab)
        stored = passing * self.rate * (2 * window_ab + window_bc) + 2 * ab * window_bc
        return ChainCost(
            memory=stored * self.size,
            probe=ab / self.join_ab + 2 * ab * self.rate * passing * window_bc,
            purge=3 * self.rate * passing + ab,
            select=3 * self.rate,
        )


def swept(m: float, n: float) -> JoinTree:
    """Return the study's tree with W1_AB = 60 m, W2_BC = 30 n.

    Windows are in minutes; m and n are at most 1.
    """
    return JoinTree(short_ab=60 * m, long_ab=60, short_bc=30 * n, long_bc=30)


def memory_over_isolated(m: float, n: float) -> float:
    """Return sliced over isolated state, dominant terms only (Eq 6.4)."""
    return (1500 * (m + n) - 840 * m * n) / (1500 * (m + n))


def memory_over_pull_up(m: float, n: float) -> float:
    """Return sliced over pulled-up state, dominant terms only (Eq 6.4)."""
    return (1500 * (m + n) - 840 * m * n) / 2160


def sliced_cpu(m: float, n: float) -> float:
    """Return the comparisons of the sliced tree (Eq 6.8, corrected).

    The unit is 60 million comparisons a minute. The printed formula was 228.61 mn + 206.33 m + 18.75 n +
    0.1375, which omits the probing of the third chain.
    """
    return 41.1 * m * n + 206.35 * m + 206.25 * n + 0.1375


def isolated_cpu(m: float, n: float) -> float:
    """Return the comparisons of the isolated trees in the same unit (Eq 6.8)."""
    return 187.5 * (m + n) + 0.125 * m + 0.125


PULL_UP_CPU = 453.798
"""Comparisons of the pulled-up tree in the same unit, for all m and n (Eq 6.8)."""
