"""Response time, slowdown, tardiness, staleness, memory."""
