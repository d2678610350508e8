"""Scalar functions: signatures, row-by-row and vectorized evaluation.

`signatures` declares the parameters and the result type of each function. The modules by topic (`strings`,
`times`, …) implement each function in up to three ways: the *row function* is a Python function of one row's
values, the *kernel* computes whole columns, and the *source form* is Python source text that is inlined into
compiled aggregates. `registry` finds a function by name. `rows` compiles typed expressions to closures over
rows, and `evaluate` compiles them to steps over Arrow tables. The row function defines the semantics: a
kernel returns the same values. Rows that a kernel cannot compute are *fallback rows*, which the row function
evaluates.
"""
