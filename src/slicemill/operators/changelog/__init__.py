"""Operators whose results change: groups, early windows and sessions, joins, top-n, EMIT."""
