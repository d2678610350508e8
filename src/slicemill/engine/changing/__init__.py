"""Lifecycle changes between two runs: statements, queries of units, rows of tables."""
