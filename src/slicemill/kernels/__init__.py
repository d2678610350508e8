"""Vectorised operators on Arrow and NumPy: pure functions, without Spark and without files.

`expressions` evaluates typed expressions over whole tables; the operators stand on it. What a kernel gives is
by definition what the reference evaluator (`slicemill.reference`) gives row by row.
"""
