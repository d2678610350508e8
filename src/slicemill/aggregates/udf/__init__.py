"""User-defined aggregates: an interpreter and a compiler."""
