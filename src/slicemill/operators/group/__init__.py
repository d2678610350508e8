"""GROUP BY over all history."""
