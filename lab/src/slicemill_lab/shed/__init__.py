"""Experiments on temporal queries with limited memory: choice of dropped tuples, and loss of accuracy."""
