"""Savings of slicing for two queries, in closed form (S15, Eq 5.2).

Two queries have windows W1 < W2 and equal rates, and the second query has a selection on the left stream.
`rho` is W1/W2, `ss` the selectivity of the selection, `sj` that of the join. Each saving is a share of
the cost of the other plan. Terms linear in the rate are omitted.
"""

from __future__ import annotations


def memory_against_pull_up(rho: float, ss: float) -> float:
    """Return the state memory saved against one join with the longer window."""
    return (1 - rho) * (1 - ss) / 2


def memory_against_push_down(rho: float, ss: float) -> float:
    """Return the state memory saved against a split stream with two joins."""
    return rho / (1 + 2 * rho + (1 - rho) * ss)


def cpu_against_pull_up(rho: float, ss: float, sj: float) -> float:
    """Return the comparisons saved against one join with the longer window."""
    return ((1 - rho) * (1 - ss) + (2 - rho) * sj) / (1 + 2 * sj)


def cpu_against_push_down(rho: float, ss: float, sj: float) -> float:
    """Return the comparisons saved against a split stream with two joins."""
    return ss * sj / (rho * (1 - ss) + ss + ss * sj + rho * sj)
