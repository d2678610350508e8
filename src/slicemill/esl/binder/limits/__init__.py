"""Budgets of queries: memory, time, and what is given up to keep them."""
