"""Rows of a stream joined with the elements of their lists."""
