"""Code generation for models, within the loops of the other aggregates.

`expressions` writes formulas. `accumulators` and `weighted` write the state of a window for each core. `code`
combines them.
"""
