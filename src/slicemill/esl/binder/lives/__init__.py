"""Bind statements that pause, resume, restart, replace and alter queries and streams."""
