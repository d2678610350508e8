"""Experiments on sliced joins: state and comparisons that queries save by sharing."""
