"""Row-by-row interpreter of user aggregates: ESL, Python classes, models, relational queries."""
