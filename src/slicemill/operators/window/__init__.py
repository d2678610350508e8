"""Aggregates over windows: panes, OVER, expiring rows and top rows."""
