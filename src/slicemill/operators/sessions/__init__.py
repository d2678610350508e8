"""GROUP BY over sessions: tuples of a group that hang together in time."""
