"""Ingest: readers of sources, order, late tuples and watermarks."""
