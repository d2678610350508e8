"""Implementations of the scalar functions and operators, one module per topic."""
