"""Ingest: source readers, ordering, late tuples and watermarks."""
