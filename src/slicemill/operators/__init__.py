"""Operators: one package each, with specification, execution step and registration."""
