"""Rewrites of the query graph, one function per module of that name."""
