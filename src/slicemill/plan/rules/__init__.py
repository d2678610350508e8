"""Rewrites of the query graph: each module has one rule with its name."""
