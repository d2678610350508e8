"""Operators whose results change: groups, early windows and sessions, joins, top-n, EMIT.

All these operators emit changes by one protocol (`retraction`).
"""
