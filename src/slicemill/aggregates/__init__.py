"""Aggregate functions: one statistic per file, with a row-by-row and a columnar implementation.

`definition` declares the interface of aggregates for operators, `registry` lists the built-in aggregates by
name, `frames` defines the rows that a window covers, and `exact` computes exact sums. User-defined
aggregates are in `udf`: an interpreter runs them row by row, or `udf.compiler` generates code for them. This
package depends neither on plans nor on operators or Spark.
"""
