"""Exact sums of numbers, rounded once, independent of the summands' order (M32)."""
