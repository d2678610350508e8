"""Planner: translate bound statements into a query graph and rewrite it."""
