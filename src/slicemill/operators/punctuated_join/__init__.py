"""Joins of streams over windows of a key that data closes."""
