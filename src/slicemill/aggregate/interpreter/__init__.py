"""Aggregates of users row by row: statements of ESL, Python classes, models, queries over relations."""
