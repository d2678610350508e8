"""Sinks: receivers of query results, with cursors (docs/sinks.md)."""
