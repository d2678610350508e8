"""Exact sums of numbers: rounded once, when asked, whatever the order of the summands (M32)."""
