"""Utilities for columns and tables: keys, order, slices, rows."""
