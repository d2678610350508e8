"""Operators: logical specifications, execution steps and their registry."""
