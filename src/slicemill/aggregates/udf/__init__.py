"""User-defined aggregates, written in ESL or Python: an interpreter and a compiler."""
