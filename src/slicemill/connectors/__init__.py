"""Connectors: sources, from which streams and tables are read, and sinks for results."""
