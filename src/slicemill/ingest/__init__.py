"""Ingest: source readers, ordering of rows, late rows and watermarks."""
