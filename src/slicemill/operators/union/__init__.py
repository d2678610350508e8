"""UNION of streams in the order of their timestamps."""
