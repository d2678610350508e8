"""Temporal coalescing: maximal runs of equal values, with the period of each."""
