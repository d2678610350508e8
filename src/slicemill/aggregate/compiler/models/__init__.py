"""Models in the loops of aggregates: the same strategies, records and pools, other lines in between.

`expressions` writes formulas, `accumulators` and `weighted` what is kept of a window for each core; `code`
puts them together.
"""
