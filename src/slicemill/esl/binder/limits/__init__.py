"""Bind resource budgets of queries: memory, lag, and load shedding to stay within them."""
