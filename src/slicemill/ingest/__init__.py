"""Ingest: source readers, order, late rows and watermarks."""
