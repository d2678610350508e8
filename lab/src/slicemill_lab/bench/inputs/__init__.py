"""Deterministic inputs of benchmarks: rows, files and queries."""
