"""Scalar functions: signatures, evaluation by row and by column, one module per topic.

`signatures` declares the parameters and the result type of each function. The modules by topic (`strings`,
`times`, …) implement the functions for single rows and for whole columns; `registry` finds a function by
name. `rows` compiles typed expressions to closures, and `evaluate` compiles them to steps over Arrow
tables. The closures define the semantics: a column must have the values that the closure returns row by
row.
"""
