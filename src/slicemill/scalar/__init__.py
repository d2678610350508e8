"""Scalar expressions: typing, evaluation by row, by column, or as generated source.

`signatures` declares the parameters and the result type of each function. The modules in `functions`
implement the functions, by topic, for single rows and for whole columns; `table` finds a function by name.
`rows` compiles typed expressions to closures and `columns` compiles them to steps over Arrow tables. The
closures define the semantics: a column must have the values that the closure returns row by row.
"""
