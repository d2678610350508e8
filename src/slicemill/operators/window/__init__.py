"""Aggregates over windows: panes, OVER, GROUP BY over windows of FROM, and top rows."""
