"""ASOF joins: each tuple of a stream with the latest one of another by its time."""
