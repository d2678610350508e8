"""Bind joins in FROM: kinds, windows, ASOF joins, and sub-queries as joins."""
