"""Temporal queries: coalescing of equal values, with load shedding."""
