"""Rows of a stream joined with the rows of a table function."""
