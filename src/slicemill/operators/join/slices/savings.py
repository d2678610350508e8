"""What slicing saves two queries, in closed form (S15, Eq 5.2); terms linear in the rate are left out.

Two queries with windows W1 < W2, the second behind a selection on the left stream, equal rates. `rho` is
W1/W2,
`ss` the selectivity of the selection, `sj` that of the join. Each saving is a share of what the other way
costs.
"""

from __future__ import annotations


def memory_against_pull_up(rho: float, ss: float) -> float:
    """State memory saved against one join with the longer window."""
    return (1 - rho) * (1 - ss) / 2


def memory_against_push_down(rho: float, ss: float) -> float:
    """State memory saved against a split stream with two joins."""
    return rho / (1 + 2 * rho + (1 - rho) * ss)


def cpu_against_pull_up(rho: float, ss: float, sj: float) -> float:
    """Comparisons saved against one join with the longer window."""
    return ((1 - rho) * (1 - ss) + (2 - rho) * sj) / (1 + 2 * sj)


def cpu_against_push_down(rho: float, ss: float, sj: float) -> float:
    """Comparisons saved against a split stream with two joins."""
    return ss * sj / (rho * (1 - ss) + ss + ss * sj + rho * sj)
