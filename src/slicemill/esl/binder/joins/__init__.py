"""Joins in FROM: their kinds, windows from conditions on timestamps, queries in WHERE as joins."""
