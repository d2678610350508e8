"""UNION of streams in timestamp order."""
