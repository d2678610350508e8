"""Tuples of a stream with the rows that a function gives for them."""
