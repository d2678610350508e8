"""Operators whose result is a changelog: GROUP BY, early emissions of windows, joins, top-n and EMIT.

All these operators emit changes by one protocol (`retraction`).
"""
