"""GROUP BY over all history that appends a row whenever an aggregate returns."""
