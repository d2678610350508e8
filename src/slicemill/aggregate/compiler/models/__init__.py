"""Models in the loops of aggregates: the same boxes, records and pools, other lines in between.

`expressions` writes formulas, `keepers` and `weighted` what is kept of a window for each core; `procedure`
puts them together.
"""
