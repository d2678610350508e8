"""Results that change: what may read them, first rows, DISTINCT and EMIT."""
