"""ORDER BY and LIMIT for each result of a window."""
