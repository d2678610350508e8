"""Coalescing whole tables at a time: maximal runs of equal values, with the time for which they held."""
