"""Connectors: sources and sinks, one folder each."""
