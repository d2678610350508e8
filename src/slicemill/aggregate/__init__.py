"""Aggregate functions, one per module, row by row and over columns.

`definition` has the interface of an aggregate for the operators that run it, `builtins` the built-in
aggregates by name, `windows` the strategies for evaluating windows, `exact` the sums that are rounded once.
User-defined aggregates and models run row by row in `interpreter`, or as code that `compiler` generates. This
package does not depend on plans, operators or Spark.
"""
