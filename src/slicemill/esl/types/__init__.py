"""Output of the binder: data types and schemas, typed expressions, queries and definitions.

All of these are immutable data. The planner and the engines work on these types only, without syntax and
without name resolution.
"""
