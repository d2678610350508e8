"""Selections and projections, which keep nothing between tuples."""
