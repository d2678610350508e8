"""Aggregate functions: one statistic per file, by row and over columns."""
