"""Output of the binder: types, schemas, expressions, queries and definitions.

All of these are immutable data. The planner and the engines work on these types only, without syntax and
without name resolution.
"""
