"""Operators whose results change: groups, early windows and sessions, joins, top-n, EMIT.

All of them emit changes by one protocol (`retraction`).
"""
