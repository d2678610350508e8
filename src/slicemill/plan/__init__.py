"""Planner: translates bound statements into a query graph and rewrites it."""
