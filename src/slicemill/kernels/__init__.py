"""Vectorised operators on Arrow and NumPy: pure functions, without Spark and without files."""
