"""GROUP BY over all history, as a table that changes."""
