"""Lookup joins of a stream with a table or a view."""
