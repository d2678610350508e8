"""Compiler of user-defined aggregates to loops over columns (M29-M38)."""
