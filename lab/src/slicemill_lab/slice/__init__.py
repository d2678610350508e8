"""Experiments on sliced joins: state and comparisons saved by sharing."""
