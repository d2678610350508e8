"""Rivals of slicemill: Spark, Flink, plain Numba, and an earlier slicemill."""
