"""Sinks: consumers of a query's result log, each with a cursor of its own (docs/sinks.md)."""
