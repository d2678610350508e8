"""Sinks: consumers of a query's result log, with cursors (docs/sinks.md)."""
