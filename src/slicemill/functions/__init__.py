"""Scalar functions: signatures, evaluation by row and by column, one module per topic."""
