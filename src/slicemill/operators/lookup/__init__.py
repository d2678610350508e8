"""Joins of a stream with a table, or with a view over a stream."""
