"""Compiler of user-defined aggregates to code over whole columns (M29-M38)."""
