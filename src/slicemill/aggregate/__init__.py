"""Aggregates: one statistic per file, row by row and over columns side by side.

`definition` says what an aggregate is to whoever runs it, `builtins` has the built-in ones by name, `windows`
the strategies by which windows are evaluated, `exact` the sums that round once. Aggregates of users and
models are run row by row by `interpreter`, or by code that `compiler` generates. Nothing in here knows of
plans, operators or Spark.
"""
