"""Tuples of a stream with the elements of a list that they have."""
