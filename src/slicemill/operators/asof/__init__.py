"""ASOF joins: each row with the latest row of another stream."""
