"""Aggregate functions: one statistic per file, by row and over columns.

`definition` has the interface of an aggregate for the operators that run it, `registry` the built-in
aggregates by name, `frames` the rows that a window covers, `exact` the sums that are rounded once.
User-defined aggregates are in `udf`: row by row in an interpreter, or as code that `udf.compiler`
generates. This package depends neither on plans nor on operators or Spark.
"""
