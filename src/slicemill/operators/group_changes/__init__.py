"""GROUP BY over all history, as a changelog."""
