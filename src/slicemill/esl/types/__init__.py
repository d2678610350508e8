"""What leaves the binder: data types and schemas, typed expressions, queries and definitions.

All of it is immutable data. Planner and engines see nothing else of a statement: no names to look up and no
syntax.
"""
