"""Scalar expressions: one table of functions, evaluated row by row, column by column, or as compiled source.

`signatures` says how a function may be called, `functions` has by topic what it means for one row and how it
is computed for whole columns, `table` finds it by its name. `rows` compiles typed expressions to closures,
`columns` to steps over Arrow tables; what a column gives is by definition what the closure gives row by row.
"""
