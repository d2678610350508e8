"""Experiments on temporal queries with little memory: what to forget, and what that costs."""
