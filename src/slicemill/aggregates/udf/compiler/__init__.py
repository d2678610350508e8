"""Compiler that generates loops over columns for user-defined aggregates (M29-M38)."""
