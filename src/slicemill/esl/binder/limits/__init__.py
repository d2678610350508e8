"""Bind resource budgets of queries: memory, lag, and load shedding."""
