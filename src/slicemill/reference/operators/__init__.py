"""Operators of the reference engine: each the plainest form of what it computes, tuple at a time."""
