"""Bind user-defined functions: CREATE FUNCTION, calls, and functions that return rows."""
