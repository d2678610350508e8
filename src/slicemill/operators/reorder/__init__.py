"""Derived streams that are put in the order of a column."""
