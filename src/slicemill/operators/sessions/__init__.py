"""Session windows: GROUP BY over tuples of a group that are close in time."""
