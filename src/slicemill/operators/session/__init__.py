"""Session windows: rows of a group that are close in time."""
