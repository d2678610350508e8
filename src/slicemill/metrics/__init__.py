"""Metrics: response time, slowdown, tardiness, staleness, memory."""
