"""Sessions with early emissions (EMIT EARLY)."""
