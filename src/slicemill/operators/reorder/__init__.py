"""Derived streams that are reordered by a column."""
