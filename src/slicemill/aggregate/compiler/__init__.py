"""Aggregates of the user's own: compiled, and run over whole columns (M29-M38)."""
