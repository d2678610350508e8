"""Connectors: sources of streams and tables, and sinks for results."""
