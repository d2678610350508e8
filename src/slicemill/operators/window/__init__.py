"""Aggregates over windows: panes, OVER, GROUP BY and top rows."""
