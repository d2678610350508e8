"""Bind joins in FROM: kinds of joins, windows derived from ON, ASOF joins, and sub-queries as joins."""
