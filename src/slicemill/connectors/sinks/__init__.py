"""Sinks: receive the results of a query, each with its own cursor (docs/sinks.md)."""
