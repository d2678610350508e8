"""Capacity planning: predict response times and staleness of queries at given rates."""
